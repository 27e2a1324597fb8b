//! The storm in CI: a minute of everything, and the proof that its checker finds the bugs that it is there for.
//! `tests/run --soak` runs it for hours.

use std::process::{Command, Output};
use std::sync::Mutex;

fn storm(arguments: &[&str], bug: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storm"));
    command.args(arguments).env_remove("PLANTED_BUG");
    if let Some(bug) = bug {
        command.env("PLANTED_BUG", bug);
    }
    command.output().expect("the storm runs")
}

fn holds(arguments: &[&str]) {
    let output = storm(arguments, None);
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        output.status.success(),
        "{arguments:?}\n{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn spec_12_everything_at_once_on_redis() {
    holds(&["--seconds", "30"]);
}

#[test]
fn spec_12_everything_at_once_on_sqlite() {
    holds(&["--seconds", "15", "--store", "sqlite"]);
}

#[test]
fn spec_4_7_replies_that_are_lost_cost_no_attempt() {
    let troubles = ["--trouble", "lost-reply", "--trouble", "lost-answer"];
    holds(&[&["--seconds", "8", "--every", "40"], troubles.as_slice()].concat());
}

/// In which storm a bug shows; most show in the one of everything that has to do with processes.
fn weather(bug: &str) -> Vec<&'static str> {
    let stalls = "--seconds 8 --slow 300 --rate 60 --every 100 --visibility 1";
    let text = match bug {
        "a repeated fetch that leases anew" => "--seconds 5 --every 30 --trouble lost-reply",
        "a repeated enqueue that adds a second entry" => {
            "--seconds 5 --every 30 --trouble lost-answer"
        }
        "finish without the fence" | "no lease number: a redelivery keeps the old one" => {
            return [stalls, "--trouble stop --trouble hold"]
                .iter()
                .flat_map(|t| t.split(' '))
                .collect();
        }
        "a release that does not look whose the lease is" => {
            "--seconds 12 --slow 400 --rate 60 --every 100 --visibility 1 --trouble hold-term"
        }
        "an entry that is not compared with the record's"
        | "a group's second delivery that is run" => {
            "--seconds 6 --every 200 --trouble duplicates --trouble group-destroy"
        }
        "a claim that is taken from the schedule and noted nowhere" => {
            "--seconds 6 --every 300 --trouble kill --trouble no-leader"
        }
        "leases that are not renewed while draining" => {
            "--seconds 8 --every 300 --slow 200 --visibility 1 --trouble term"
        }
        _ => "--seconds 6 --every 250 --trouble kill --trouble stop --trouble term --trouble abort",
    };
    text.split(' ').collect()
}

#[test]
#[ignore = "takes minutes: tests/run --full runs it"]
fn each_planted_bug_is_found() {
    let bugs = dtq::__private::planted_bugs();
    assert!(bugs.len() >= 20, "{}", bugs.len());
    // What a storm shows without a bug is no proof of one.
    let mut calm: Vec<_> = bugs.iter().map(|bug| weather(bug)).collect();
    calm.sort_unstable();
    calm.dedup();
    let calm = Mutex::new(calm);
    let left = Mutex::new(bugs);
    let missed = Mutex::new(Vec::new());
    let find = || loop {
        let next = calm.lock().expect("no panic holds it").pop();
        if let Some(weather) = next {
            holds(&weather);
            continue;
        }
        let Some(bug) = left.lock().expect("no panic holds it").pop() else { return };
        let mut weather = weather(bug);
        weather.extend(["--settle", "20"]);
        // What a storm brings is chance: a bug may need a second one, or a third.
        let found = (0..3).find_map(|_| {
            let text = storm(&weather, Some(bug)).stdout;
            let text = String::from_utf8_lossy(&text).into_owned();
            text.lines().find(|line| line.starts_with("VIOLATION")).map(str::to_owned)
        });
        match found {
            Some(violation) => println!("{bug}: {violation}"),
            None => missed.lock().expect("no panic holds it").push(bug),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(find);
        }
    });
    let missed = missed.into_inner().expect("no panic holds it");
    assert!(missed.is_empty(), "not found: {missed:?}");
}
