use std::net::IpAddr;
use std::time::{Duration, Instant};

use landfall_testkit::bed::{Doubled, Protocol};
use landfall_testkit::{Bed, wait};

use super::{ALL, DEADLINE, bed, give, take};

#[tokio::test]
async fn the_sampler_sees_addresses_come_move_and_go() {
    let Some(bed) = bed().await else { return };
    let sampler = bed.sampler().unwrap();
    for vip in [Bed::vip4(1), Bed::vip6(1)] {
        let began = Instant::now();
        give(bed.node("n1"), vip);
        assert_eq!(sampler.holder(vip, &ALL, DEADLINE).await.unwrap(), "n1");
        let moved = Instant::now();
        take(bed.node("n1"), vip);
        give(bed.node("n3"), vip);
        assert_eq!(sampler.holder(vip, &ALL, DEADLINE).await.unwrap(), "n3");
        let given = Instant::now();
        sampler.next_sample().await;

        let record = sampler.record();
        let [first, second] = record.holdings(vip) else { panic!("{record:?}") };
        assert_eq!((first.node.as_str(), second.node.as_str()), ("n1", "n3"));
        assert!(began <= first.from && first.until.unwrap() >= moved);
        assert_eq!(second.until, None);
        let taken = record.taken(vip, "n1", moved).unwrap();
        assert_eq!(taken.node, "n3");
        assert!(taken.after <= given - moved);
        let gap = record.gap(vip, moved, &ALL);
        assert!(gap > Duration::ZERO && gap <= taken.after, "{gap:?} {taken:?}");
        assert_eq!(record.doubled(vip, &ALL), Doubled::default());
    }
}

#[tokio::test]
async fn the_sampler_sees_an_address_that_two_nodes_hold() {
    let Some(bed) = bed().await else { return };
    let sampler = bed.sampler().unwrap();
    for vip in [Bed::vip4(1), Bed::vip6(1)] {
        give(bed.node("n1"), vip);
        give(bed.node("n2"), vip);
        for _ in 0..3 {
            sampler.next_sample().await;
        }
        let record = sampler.record();
        assert_eq!(record.holders(vip).len(), 2);
        let doubled = record.doubled(vip, &ALL);
        assert!(doubled.samples >= 3 && doubled.longest > Duration::ZERO, "{doubled:?}");
        assert_eq!(record.doubled(vip, &["n1", "n3"]).samples, 0);
        assert!(record.all_doubled(&ALL).contains_key(&vip));
    }
}

#[tokio::test]
async fn the_sampler_follows_a_node_that_is_switched_off_and_on() {
    let Some(bed) = bed().await else { return };
    let sampler = bed.sampler().unwrap();
    let (node, vip) = (bed.node("n2"), Bed::vip4(1));
    give(node, vip);
    assert_eq!(sampler.holder(vip, &ALL, DEADLINE).await.unwrap(), "n2");
    node.power_off().unwrap();
    let is_held = async || sampler.record().holders(vip).len();
    wait::until("no holder", DEADLINE, async || is_held().await == 0).await.unwrap();
    node.power_on().await.unwrap();
    give(node, vip);
    assert_eq!(sampler.holder(vip, &ALL, DEADLINE).await.unwrap(), "n2");
    assert_eq!(sampler.record().holdings(vip).len(), 2);
    // Its addresses outlive its programs, as the sampler sees.
    node.kill_programs().unwrap();
    sampler.next_sample().await;
    assert_eq!(is_held().await, 1);
}

#[tokio::test]
async fn the_sampler_sees_hundreds_of_addresses_at_once() {
    let Some(bed) = bed().await else { return };
    let sampler = bed.sampler().unwrap();
    let count = 300;
    let batch = |verb: &str, device| {
        let line = |number| format!("address {verb} {} dev {device}\n", Bed::vip4(number));
        (0..count).map(line).collect::<String>()
    };
    let file = bed.dir().join("batch");
    std::fs::write(&file, batch("add", "eth0")).unwrap();
    for name in ["n1", "n2"] {
        bed.node(name).ip(&format!("-batch {}", file.display())).unwrap();
    }
    wait::until("all of them doubled", DEADLINE, async || {
        let doubled = sampler.record().all_doubled(&ALL).len();
        if doubled == usize::from(count) { Ok(()) } else { Err(doubled.to_string()) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_client_sees_which_node_answers_and_how_long_none_does() {
    let Some(bed) = bed().await else { return };
    for vip in [Bed::vip4(1), Bed::vip6(1)] {
        let asking = bed.ask(vip).unwrap();
        let answered = async |node: &str| {
            wait::until(format!("answers of {node}"), DEADLINE, async || {
                let by = [Protocol::Udp, Protocol::Tcp].map(|it| asking.answered_by(it));
                if by.iter().all(|by| by.as_deref() == Some(node)) {
                    Ok(())
                } else {
                    Err(format!("{by:?}"))
                }
            })
            .await
            .unwrap();
        };
        give(bed.node("n1"), vip);
        answered("n1").await;
        let began = Instant::now();
        bed.node("n1").silence_port().unwrap();
        let long = Duration::from_millis(200);
        wait::until("a silence by both protocols", DEADLINE, async || {
            let silence = |it| asking.questions(it).silence(began, Instant::now());
            silence(Protocol::Udp) >= long && silence(Protocol::Tcp) >= long
        })
        .await
        .unwrap();
        let healed = bed.node("n1").restore().await.unwrap();
        answered("n1").await;
        // Wait for an answer to what was asked after it came back.
        wait::until("a new answer", DEADLINE, async || {
            !asking.questions(Protocol::Udp).runs(healed).is_empty()
        })
        .await
        .unwrap();
        // It does not end with the fault, and counts no longer than it lasts.
        let silence = asking.silence(began);
        assert!(silence >= long && silence <= began.elapsed(), "{silence:?}");
        let questions = asking.questions(Protocol::Udp);
        assert!(!questions.is_answered_by_two(began));
        assert!(questions.answers() < questions.all().len());
    }
}

#[tokio::test]
async fn announcements_name_the_address_and_the_node() {
    let Some(bed) = bed().await else { return };
    let announcements = bed.announcements().unwrap();
    let node = bed.node("n2");
    let before = Instant::now();
    // The kernel itself announces addresses, if told so, when their hardware address is set.
    for setting in ["ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/ndisc_notify"] {
        let on = move || std::fs::write(format!("/proc/sys/net/{setting}"), "1");
        node.inside(on).unwrap().unwrap();
    }
    node.ip("link set eth0 address 02:00:77:00:00:02").unwrap();
    for address in [IpAddr::from(node.ipv4()), node.ipv6().into()] {
        let what = format!("an announcement of {address}");
        let heard = wait::until(what, DEADLINE, async || announcements.first(address, before))
            .await
            .unwrap();
        assert_eq!((heard.address, heard.node.as_str()), (address, "n2"));
    }
    assert!(announcements.all().iter().all(|it| it.node == "n2"), "{:?}", announcements.all());
}
