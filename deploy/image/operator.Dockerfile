# The operator: the binary and the libraries that it is linked with, and nothing else.
#
#   cargo build --release -p landfall
#   docker build -f deploy/image/operator.Dockerfile -t landfall .
#
# It needs no network but for the base image, which gives the C library and is not in the result. Its
# C library must be as new as that of the machine on which the binary was built.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS libraries
COPY target/release/landfall /usr/local/bin/landfall
# A binary that does not run here would not run in the image.
RUN set -e; \
    /usr/local/bin/landfall --version; \
    mkdir -p /tmp/image; \
    for file in /usr/local/bin/landfall $(ldd /usr/local/bin/landfall | grep -o '/[^ ]*'); do \
        cp --parents --dereference "$file" /tmp/image; \
    done

FROM scratch
LABEL org.opencontainers.image.title="landfall" \
      org.opencontainers.image.description="Gives LoadBalancer Services their IP addresses" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=libraries /tmp/image /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/landfall"]
