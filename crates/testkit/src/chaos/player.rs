//! The users: they do at random anything that a person with too many rights might do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::params::Preconditions;
use kube::{Api, Client, ResourceExt as _};
use landfall_api::{IP, IPGroup, name};
use serde_json::{Value, json};

use super::hostile;
use super::world::{self, Name};
use crate::builders::bare_claim;
use crate::cluster::{self, key};
use crate::random::Random;
use crate::{Error, Result, wait};

/// How many users act at once, sometimes on the same object.
const USERS: u64 = 4;
/// How many of the last acts of a story are kept.
const REMEMBERED: usize = 80;
const DEADLINE: Duration = Duration::from_secs(90);
/// A person needs a moment between two acts; without it the API server would do nothing else.
const LONGEST_PAUSE: usize = 60;

/// The acts of users so far.
#[derive(Debug, Default)]
struct Journal {
    last: VecDeque<String>,
    touched: BTreeSet<String>,
    refused: usize,
    /// Claims made by hand, to be deleted again.
    bare: BTreeSet<String>,
    by_kind: BTreeMap<&'static str, u64>,
}

/// The users of one round.
pub(super) struct Player {
    client: Client,
    seed: u64,
    start: Instant,
    acts: AtomicUsize,
    over: AtomicBool,
    journal: Mutex<Journal>,
}

/// The outcome of one act.
type Done = (&'static str, String, kube::Result<()>);

impl Player {
    pub(super) fn new(client: Client, seed: u64) -> Self {
        Self {
            client,
            seed,
            start: Instant::now(),
            acts: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            journal: Mutex::default(),
        }
    }

    /// Acts until [`Player::ends`], and at least this many times.
    pub(super) async fn play(&self, at_least: usize) {
        join_all((0..USERS).map(async |user| {
            let mut random = Random::child(self.seed, user);
            while !self.over.load(Ordering::Relaxed) || self.acts() < at_least {
                let (kind, what, outcome) = self.act(&mut random).await;
                self.note(user, kind, &what, &outcome);
                let pause = random.below(LONGEST_PAUSE) as u64;
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }))
        .await;
    }

    pub(super) fn ends(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// How many acts there were, of all users.
    pub(super) fn acts(&self) -> usize {
        self.acts.load(Ordering::Relaxed)
    }

    /// Waits until users have acted this many times more.
    pub(super) async fn some_acts(&self, more: usize) -> Result<()> {
        let enough = self.acts() + more;
        wait::until(format!("{enough} acts"), DEADLINE, async || self.acts() >= enough).await?;
        Ok(())
    }

    pub(super) fn refused(&self) -> usize {
        self.journal().refused
    }

    pub(super) fn touched(&self) -> BTreeSet<String> {
        self.journal().touched.clone()
    }

    pub(super) fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        self.journal().by_kind.clone()
    }

    /// The last acts, oldest first.
    pub(super) fn last_acts(&self) -> Vec<String> {
        self.journal().last.iter().cloned().collect()
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, user: u64, kind: &'static str, what: &str, outcome: &kube::Result<()>) {
        self.acts.fetch_add(1, Ordering::Relaxed);
        let at = self.start.elapsed().as_secs_f64();
        let mut journal = self.journal();
        let end = match outcome {
            Ok(()) => "done".to_owned(),
            Err(error) => {
                journal.refused += 1;
                // The rest of an answer is too long for one line.
                let api = if let kube::Error::Api(status) = error { Some(status) } else { None };
                let why = api.map_or_else(|| error.to_string(), |status| status.message.clone());
                format!("not done: {why}")
            }
        };
        journal.touched.insert(what.split(' ').next().unwrap_or_default().to_owned());
        *journal.by_kind.entry(kind).or_default() += 1;
        if journal.last.len() == REMEMBERED {
            journal.last.pop_front();
        }
        journal.last.push_back(format!("{at:8.3} user {user}: {what}: {end}"));
    }

    async fn act(&self, random: &mut Random) -> Done {
        match random.below(23) {
            0..=2 => self.create(random).await,
            3 => self.delete(random).await,
            4..=6 => self.recreate(random).await,
            7..=13 => self.change(random).await,
            14 if random.once_in(2) => self.edit_map(random).await,
            14 | 15 => self.edit_pool(random).await,
            16 => self.touch_a_claim(random).await,
            17 => self.claim_by_hand(random).await,
            18 => self.drop_a_claim(random).await,
            19 => self.show_by_hand(random).await,
            _ => self.misbehave(random).await,
        }
    }

    /// A tenant that no pool serves tries to get addresses of others.
    async fn misbehave(&self, random: &mut Random) -> Done {
        let (name, what, service) = hostile::any_deed(random);
        let services = self.services(world::HOSTILE);
        let gone = services.delete(&name, &DeleteParams::default()).await.map(drop);
        let outcome = match service {
            Some(service) => services.create(&PostParams::default(), &service).await.map(drop),
            None => gone,
        };
        ("hostile", format!("{}/{name} {what}", world::HOSTILE), outcome)
    }

    fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn claims(&self) -> Api<IP> {
        Api::all(self.client.clone())
    }

    fn pools(&self) -> Api<IPGroup> {
        Api::all(self.client.clone())
    }

    /// Any Service; now and then a toy, so that there are some to write on by hand.
    fn anyone(random: &mut Random) -> Name {
        if random.once_in(8) { world::any_toy(random) } else { world::any_service(random) }
    }

    async fn create(&self, random: &mut Random) -> Done {
        let who = Self::anyone(random);
        let made = self.make(random, &who).await;
        ("created", format!("{} is created", who.key()), made)
    }

    async fn make(&self, random: &mut Random, who: &Name) -> kube::Result<()> {
        let service = world::any_manifest(random, &who.name);
        self.services(who.namespace).create(&PostParams::default(), &service).await.map(drop)
    }

    async fn delete(&self, random: &mut Random) -> Done {
        let who = Self::anyone(random);
        let gone = self.services(who.namespace).delete(&who.name, &DeleteParams::default()).await;
        ("deleted", format!("{} is deleted", who.key()), gone.map(drop))
    }

    async fn recreate(&self, random: &mut Random) -> Done {
        let who = Self::anyone(random);
        let gone = self.services(who.namespace).delete(&who.name, &DeleteParams::default()).await;
        let made = self.make(random, &who).await;
        ("made again", format!("{} is made again", who.key()), gone.map(drop).and(made))
    }

    async fn change(&self, random: &mut Random) -> Done {
        let who = world::any_service(random);
        let (what, patches) = world::any_change(random);
        let mut outcome = Ok(());
        let text = patches.iter().map(ToString::to_string).collect::<Vec<_>>().join(" then ");
        for patch in patches {
            let services = self.services(who.namespace);
            let patched =
                services.patch(&who.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            if let Err(error) = patched {
                outcome = Err(error);
            }
        }
        ("changed", format!("{} {what} {text}", who.key()), outcome)
    }

    async fn edit_pool(&self, random: &mut Random) -> Done {
        let (pool, edit) = world::any_pool_edit(random);
        let what = format!("IPGroup/{pool} is edited {edit:?}");
        let outcome = match edit {
            None => self.pools().delete(pool, &DeleteParams::default()).await.map(drop),
            Some(spec) => {
                let patch = Patch::Merge(json!({ "spec": spec }));
                match self.pools().patch(pool, &PatchParams::default(), &patch).await {
                    // Another user deleted it; it comes back as it was at first.
                    Err(kube::Error::Api(status)) if status.is_not_found() => {
                        let base = world::pools().into_iter().find(|base| base.name_any() == pool);
                        match base {
                            Some(base) => {
                                self.pools().create(&PostParams::default(), &base).await.map(drop)
                            }
                            None => Ok(()),
                        }
                    }
                    other => other.map(drop),
                }
            }
        };
        ("pool edited", what, outcome)
    }

    async fn edit_map(&self, random: &mut Random) -> Done {
        let map = world::any_map_edit(random);
        let what = format!("ConfigMap/kubevip is edited {}", map["data"]);
        ("pool edited", what, self.write_map(&map).await)
    }

    async fn write_map(&self, map: &Value) -> kube::Result<()> {
        let (namespace, name) = world::MAP;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let params = PatchParams::apply("player").force();
        maps.patch(name, &params, &Patch::Apply(map)).await.map(drop)
    }

    /// Any claim: a label changes nothing but its version.
    async fn touch_a_claim(&self, random: &mut Random) -> Done {
        let mut what = "IP of another gets a label".to_owned();
        let outcome = async {
            let all = self.claims().list(&ListParams::default()).await?;
            if all.items.is_empty() {
                return Ok(());
            }
            let name = random.pick(&all.items).name_any();
            what = format!("IP/{name} gets a label");
            let labels = json!({"touched": random.below(1000).to_string()});
            let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
            self.claims().patch(&name, &PatchParams::default(), &patch).await.map(drop)
        };
        let outcome = outcome.await;
        ("claim touched", what, outcome)
    }

    /// An address taken by a claim that names no holder.
    async fn claim_by_hand(&self, random: &mut Random) -> Done {
        let addr = world::any_address(random);
        let what = format!("IP/{} is made by hand", name::of(addr));
        self.journal().bare.insert(name::of(addr));
        let made = self.claims().create(&PostParams::default(), &bare_claim(addr)).await;
        ("claim by hand", what, made.map(drop))
    }

    /// Deletes a toy's claim: only a toy's, and only that very claim.
    async fn drop_a_claim(&self, random: &mut Random) -> Done {
        let toy = world::any_toy(random);
        let what = format!("{}: its claim is deleted by hand", toy.key());
        let outcome = async {
            let all = self.claims().list(&ListParams::default()).await?;
            let Some(claim) = all.iter().find(|claim| is_of(claim, &toy)) else { return Ok(()) };
            let guard =
                Preconditions { resource_version: claim.resource_version(), uid: claim.uid() };
            let delete = DeleteParams { preconditions: Some(guard), ..DeleteParams::default() };
            self.claims().delete(&claim.name_any(), &delete).await.map(drop)
        };
        ("claim dropped", what, outcome.await)
    }

    /// Writes a toy's status: another Service's address, a free one, or none.
    async fn show_by_hand(&self, random: &mut Random) -> Done {
        let toy = world::any_toy(random);
        let mut what = format!("{} is written by hand", toy.key());
        let outcome = async {
            let others = self.services(world::NAMESPACES[1]).list(&ListParams::default()).await?;
            let shown: Vec<_> = others.iter().flat_map(cluster::shown).collect();
            let addr = match random.below(4) {
                0 => None,
                1 => Some(world::any_address(random)),
                _ if shown.is_empty() => None,
                _ => Some(*random.pick(&shown)),
            };
            what = format!("{} shows {addr:?} by hand", toy.key());
            self.show(&toy.key(), addr).await
        };
        let outcome = outcome.await;
        ("status by hand", what, outcome)
    }

    async fn show(&self, service: &str, addr: Option<IpAddr>) -> kube::Result<()> {
        let (namespace, name) = service.split_once('/').unwrap_or_default();
        let ingress: Vec<Value> = addr.iter().map(|addr| json!({"ip": addr})).collect();
        let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
        let services = self.services(namespace);
        services.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// Puts the pools back as they were at first and deletes claims that name no holder.
    pub(super) async fn puts_pools_back(&self) -> Result<()> {
        for base in world::pools() {
            let what = format!("IPGroup/{} to be as at first", base.name_any());
            wait::until(what, DEADLINE, async || self.put_back(&base).await).await?;
        }
        let map = world::map();
        wait::until("the ConfigMap to be as at first", DEADLINE, async || {
            self.write_map(&map).await
        })
        .await?;
        let bare = self.journal().bare.clone();
        wait::until("claims made by hand to go", DEADLINE, async || {
            let all = self.claims().list(&ListParams::default()).await?;
            for claim in all.iter().filter(|claim| bare.contains(&claim.name_any())) {
                if claim.spec.holders.is_empty() && claim.spec.reserved_for.is_none() {
                    let guard = Preconditions {
                        resource_version: claim.resource_version(),
                        uid: claim.uid(),
                    };
                    let delete =
                        DeleteParams { preconditions: Some(guard), ..DeleteParams::default() };
                    self.claims().delete(&claim.name_any(), &delete).await?;
                }
            }
            Ok::<_, kube::Error>(())
        })
        .await?;
        Ok(())
    }

    async fn put_back(&self, base: &IPGroup) -> kube::Result<()> {
        match self.pools().get_opt(&base.name_any()).await? {
            Some(mut pool) => {
                pool.spec = base.spec.clone();
                self.pools().replace(&base.name_any(), &PostParams::default(), &pool).await?;
            }
            None => drop(self.pools().create(&PostParams::default(), base).await?),
        }
        Ok(())
    }

    /// Removes addresses that toys show without having a claim on them.
    pub(super) async fn tidies_toys(&self) -> Result<()> {
        let seen = cluster::Snapshot::take(&self.client).await?;
        for service in seen.services.iter().filter(|service| world::is_toy(&key(service))) {
            let unclaimed = cluster::shown(service).into_iter().any(|addr| {
                let named = |claim: &&IP| {
                    let uids = claim.spec.holders.iter().map(|holder| holder.uid.clone());
                    claim.name_any() == name::of(addr) && uids.clone().any(|it| it == service.uid())
                };
                !seen.claims.iter().any(|claim| named(&claim))
            });
            if unclaimed {
                let cleared = self.show(&key(service), None).await;
                cleared.map_err(Error::kube(format!("clearing {}", key(service))))?;
            }
        }
        Ok(())
    }
}

/// Whether a claim names this Service and no other holder.
fn is_of(claim: &IP, who: &Name) -> bool {
    let mut holders = claim.spec.holders.iter();
    let named = holders.next().is_some_and(|holder| {
        holder.namespace.as_deref() == Some(who.namespace) && holder.name == who.name
    });
    named && holders.next().is_none()
}
