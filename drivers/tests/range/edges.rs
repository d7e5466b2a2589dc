//! The smallest and the largest ranges, and those with reserved ends, to the last address (D6, D8).

use ipledger_core::api::{ClaimFamily, IPAddress};
use ipledger_core::store::StoreExt;
use serde_json::{Value, json};

use crate::status::numbers;
use crate::world::World;

/// Serves `claims` claims from one item and returns what they got, in the order in which they came.
async fn handed_out(
    world: &World,
    parameters: Value,
    family: ClaimFamily,
    claims: usize,
) -> Vec<String> {
    world.class("c", parameters).await;
    let drivers = [world.drive()];
    for n in 0..claims {
        world.claim(&format!("k{n:02}"), family, "c").await;
        world.settled(&drivers).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    world.settled(&drivers).await;
    let mut holders = world.addresses().await;
    holders.sort_by_key(|a| a.spec.claim_ref.as_ref().map(|r| r.name.clone()));
    holders.into_iter().map(|a| a.spec.address).collect()
}

/// The capacity of the one family that the class lists.
async fn capacity(world: &World) -> String {
    let lines = numbers(world, "c").await;
    let listed = |line: &String| !line.ends_with(" 0 0 0 0 0 0");
    lines.into_iter().find(listed).unwrap_or_default()
}

/// As in netbox#2757 and #6455, nautobot#557, phpipam#477 and cilium#24351: ranges of one or two
/// addresses give none, or their numbers are wrong.
#[tokio::test(start_paused = true)]
async fn ranges_of_one_and_two_addresses_give_exactly_those() {
    let cases = [
        (
            "192.0.2.0/31",
            ClaimFamily::IPv4,
            vec!["192.0.2.0", "192.0.2.1"],
        ),
        ("192.0.2.7/32", ClaimFamily::IPv4, vec!["192.0.2.7"]),
        ("192.0.2.7", ClaimFamily::IPv4, vec!["192.0.2.7"]),
        ("192.0.2.7-192.0.2.7", ClaimFamily::IPv4, vec!["192.0.2.7"]),
        (
            "2001:db8::a/127",
            ClaimFamily::IPv6,
            vec!["2001:db8::a", "2001:db8::b"],
        ),
        ("2001:db8::7/128", ClaimFamily::IPv6, vec!["2001:db8::7"]),
    ];
    for (range, family, wanted) in cases {
        for reserve in [false, true] {
            let world = World::new();
            let parameters = json!({"addresses": [range], "reserveFirstLast": reserve});
            let got = handed_out(&world, parameters, family, wanted.len() + 1).await;
            assert_eq!(got, wanted, "{range}");
            let last = format!("k{:02}", wanted.len());
            assert_eq!(world.reason(&last).await, "PoolExhausted", "{range}");
            let n = wanted.len();
            let name = family.families()[0];
            assert_eq!(capacity(&world).await, format!("{name} {n} {n} 0 0 0 0"));
        }
    }
}

/// As in netbox#658 and nautobot#1428: network and broadcast are counted on one side only, and more
/// than everything is used.
#[tokio::test(start_paused = true)]
async fn reserved_ends_are_never_handed_out_and_count_nowhere_even_if_somebody_holds_them() {
    for (reserve, size) in [(true, 62), (false, 64)] {
        let world = World::new();
        for end in ["192.0.2.0", "192.0.2.63"] {
            let mut by_hand = IPAddress::default();
            by_hand.metadata.name = format!("ip-{}", end.replace('.', "-"));
            by_hand.spec.address = end.to_owned();
            by_hand.spec.class_name = "c".to_owned();
            world.store.create_resource(&by_hand).await.unwrap();
        }
        let parameters = json!({"addresses": ["192.0.2.0/26"], "reserveFirstLast": reserve});
        let all = handed_out(&world, parameters, ClaimFamily::IPv4, 64).await;
        assert_eq!(all.len(), 64, "the two ends and 62 between");
        assert_eq!(world.reason("k62").await, "PoolExhausted");
        let (excluded, outside) = if reserve { (2, 2) } else { (0, 0) };
        assert_eq!(
            capacity(&world).await,
            format!("IPv4 {size} {size} 0 0 {excluded} {outside}")
        );
    }
}

/// As in netbox#1390 and #8196 and infra-controller#2382: a large IPv6 range fails, or is exhausted
/// while it is empty.
#[tokio::test(start_paused = true)]
async fn the_largest_ranges_give_their_first_addresses_and_exact_numbers() {
    for (range, total) in [
        ("2001:db8::/29", 1_u128 << 99),
        ("2001:db8::/64", 1 << 64),
        ("2001:db8::/65", 1 << 63),
    ] {
        let world = World::new();
        let parameters = json!({"addresses": [range]});
        let got = handed_out(&world, parameters, ClaimFamily::IPv6, 50).await;
        assert_eq!(
            (got[0].as_str(), got[49].as_str()),
            ("2001:db8::", "2001:db8::31")
        );
        let free = total - 50;
        assert_eq!(
            capacity(&world).await,
            format!("IPv6 {total} 50 {free} 0 0 0")
        );
    }
}

/// As in netbox#2519 and #3475: callers at once get the same address, or leave holes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_that_come_at_once_get_a_run_of_addresses_without_a_hole() {
    for count in [16, 64, 256] {
        let world = World::new();
        world
            .class("c", json!({"addresses": ["10.0.0.0/16"]}))
            .await;
        let drivers = [world.drive()];
        let create = |n: usize| {
            let world = world.clone();
            tokio::spawn(async move { drop(world.claim4(&format!("k{n:03}")).await) })
        };
        for task in (0..count).map(create).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        world.settled(&drivers).await;
        let addresses = world.addresses().await;
        let ips = addresses.iter().map(|a| a.ip().unwrap().number());
        let mut ips: Vec<u128> = ips.collect();
        ips.sort_unstable();
        let first = u128::from(u32::from_be_bytes([10, 0, 0, 0]));
        let wanted: Vec<u128> = (first..first + count as u128).collect();
        assert_eq!(ips, wanted);
        assert_eq!(drivers[0].controller.stats().failures, 0);
    }
}
