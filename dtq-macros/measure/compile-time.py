#!/usr/bin/env python3
"""How long a task takes to compile: 500 of them, against 500 plain structs with serde's derives and a
hand-written enqueue function each. Prints seconds of the processor and their ratio.

    dtq-macros/measure/compile-time.py [N]

Builds in a temporary directory, with the sources of this checkout, without any feature of dtq.
"""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 500

MANIFEST = f"""
[package]
name = "NAME"
version = "0.0.0"
edition = "2024"

[dependencies]
dtq = {{ path = "{ROOT}/dtq", default-features = false }}
serde = {{ version = "1", features = ["derive"] }}
serde_json = "1"
"""

ERROR = """#![allow(unused)]
#[derive(Debug)]
pub struct MailError;
impl std::fmt::Display for MailError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("mail") }
}
impl std::error::Error for MailError {}
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Extra { pub a: u8, pub b: String }
"""

FUNCTION = """pub async fn task_{n}(to: String, lang: Option<String>, count: u64{extra}) -> Result<String, MailError> {{
    if count == {n} {{ Err(MailError) }} else {{ Ok(format!("{{to}}{{lang:?}}")) }}
}}
"""

# What one would write without dtq: the payload, how to send it, how to run it.
PLAIN = """
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Task{n} {{ pub to: String, pub lang: Option<String>, pub count: u64{field} }}
{function}
impl Task{n} {{
    pub fn enqueue(to: impl Into<String>, lang: Option<String>, count: u64{extra}) -> Result<(&'static str, Vec<u8>), serde_json::Error> {{
        Ok(("task_{n}", serde_json::to_vec(&Self {{ to: to.into(), lang, count{name} }})?))
    }}
}}
pub fn run_{n}(json: Vec<u8>) -> std::pin::Pin<Box<dyn Future<Output = Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>>> + Send>> {{
    Box::pin(async move {{
        let task: Task{n} = serde_json::from_slice(&json)?;
        let result = task_{n}(task.to, task.lang, task.count{call}).await?;
        Ok(serde_json::to_vec(&result)?)
    }})
}}
"""


def source(kind):
    parts = [ERROR]
    for n in range(COUNT):
        # Every fourth has a type that the macro does not know by its name.
        extra = ", extra: Extra" if n % 4 == 0 else ""
        function = FUNCTION.format(n=n, extra=extra)
        if kind == "tasks":
            parts.append("#[dtq::task]\n" + function)
        elif kind == "plain":
            named = bool(extra)
            parts.append(PLAIN.format(
                n=n, function=function, extra=extra, field=", pub extra: Extra" if named else "",
                name=", extra" if named else "", call=", task.extra" if named else "",
            ))
        else:
            parts.append(function)
    return "".join(parts)


def main():
    home = pathlib.Path(tempfile.mkdtemp(prefix="dtq-measure-"))
    target = home / "target"
    seconds = {}
    try:
        for kind in ("functions", "plain", "tasks"):
            crate = home / kind
            (crate / "src").mkdir(parents=True)
            (crate / "Cargo.toml").write_text(MANIFEST.replace("NAME", f"measured_{kind}"))
            shutil.copy(ROOT / "Cargo.lock", crate / "Cargo.lock")
            (crate / "src/lib.rs").write_text(source(kind))
            for build in ("check", "build", "build --release"):
                runs = []
                for _ in range(3):
                    os.utime(crate / "src/lib.rs")
                    (crate / "src/lib.rs").touch()
                    command = ["cargo", *build.split(), "--quiet", "--manifest-path", str(crate / "Cargo.toml")]
                    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0"}
                    before = resource.getrusage(resource.RUSAGE_CHILDREN)
                    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
                    after = resource.getrusage(resource.RUSAGE_CHILDREN)
                    runs.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
                # The first builds the dependencies.
                seconds[kind, build] = min(runs[1:])
                print(f"{kind:10} {build:16} {seconds[kind, build]:6.2f} s", flush=True)
    finally:
        shutil.rmtree(home)
    for build in ("check", "build", "build --release"):
        base = seconds["functions", build]
        tasks, plain = seconds["tasks", build] - base, seconds["plain", build] - base
        each = 1000 * tasks / COUNT
        print(f"{build:16} {each:5.2f} ms a task, {1000 * plain / COUNT:5.2f} ms by hand: {tasks / plain:.2f}x")


main()
