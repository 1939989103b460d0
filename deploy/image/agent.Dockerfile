# The agent on the nodes of keepalived groups: the binary, and Debian's keepalived.
#
#   cargo build --release -p landfall
#   docker build -f deploy/image/agent.Dockerfile -t landfall-agent .
#
# Where keepalived is not in the base image it is downloaded from Debian. Where there is no network,
# name a Debian image that has keepalived already:
#
#   docker build -f deploy/image/agent.Dockerfile --build-arg BASE=YOUR/DEBIAN-WITH-KEEPALIVED .
ARG BASE=debian:bookworm-slim

FROM ${BASE}
LABEL org.opencontainers.image.title="landfall-agent" \
      org.opencontainers.image.description="Lets nodes hold the addresses of Services, with keepalived" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-or-later"
RUN set -e; \
    if ! command -v keepalived > /dev/null; then \
        apt-get update; \
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends keepalived; \
        rm -rf /var/lib/apt/lists/*; \
    fi
COPY target/release/landfall /usr/local/bin/landfall
# The agent asks keepalived for its state as JSON, which not every build of it can tell. A binary
# that is linked with a newer C library would not run.
RUN set -e; \
    keepalived --signum=JSON > /dev/null; \
    /usr/local/bin/landfall --version
# The capabilities that keepalived needs are those of root. The group's DaemonSet takes all others away.
USER 0:0
ENTRYPOINT ["/usr/local/bin/landfall"]
