//! What cargo compiled in the main checkout, in a new session: a real cargo, with a registry of its own
//! on the loopback interface.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};

/// A repository with a dependency, in which cargo compiled everything.
struct RustScene {
    scene: Scene,
    /// The directory of cargo itself.
    toolchain: PathBuf,
}

/// Serves the files of a directory until the process ends.
fn serve(directory: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut request = String::new();
            let _ = reader.read_line(&mut request);
            let mut header = String::new();
            while reader.read_line(&mut header).is_ok_and(|count| count > 2) {
                header.clear();
            }
            let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            let (status, body) = match fs::read(directory.join(path)) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = (&stream).write_all(&[head.as_bytes(), &body].concat());
        }
    });
    format!("http://{address}")
}

impl RustScene {
    fn new(login: &str) -> RustScene {
        let scene = Scene::new();
        let rustc = scene.env.command("rustc", Path::new("/")).args(["--print", "sysroot"]);
        let names = ["HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];
        let variables = names.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let rustc = variables.fold(rustc, |rustc, (name, value)| rustc.env(name, value));
        let sysroot = scene.env.run_command(rustc).ok().to_owned();
        let rust = RustScene { scene, toolchain: Path::new(&sysroot).join("bin") };
        let repo = &rust.scene.repo;
        fs::create_dir_all(rust.scene.env.home().join(".cargo/bin")).expect("free");
        fs::write(rust.scene.env.home().join(".cargo/credentials.toml"), login).expect("free");
        let registry = rust.publish();
        let other = rust.scene.env.repo_at("other");
        other.commit_file("Cargo.toml", "[package]\nname = \"other\"\nversion = \"1.0.0\"\n");
        other.commit_file("src/lib.rs", "pub fn half(number: u32) -> u32 { number / 2 }\n");
        let other = other.path().display();
        let manifest = format!(
            "[package]\nname = \"own\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
             [dependencies]\nlibrary = {{ version = \"1\", registry = \"here\" }}\n\
             other = {{ git = \"file://{other}\" }}\n"
        );
        repo.write("Cargo.toml", manifest);
        let main = "fn main() { println!(\"{}\", other::half(2 * library::answer())) }\n";
        repo.write("src/main.rs", main);
        let registries = format!("[registries.here]\nindex = \"sparse+{registry}/\"\n");
        repo.write(".cargo/config.toml", &registries);
        repo.write(".gitignore", "/target\n");
        rust.cargo(repo, &["build"]);
        repo.git(["add", "-A"]);
        repo.git(["commit", "-q", "-m", "own"]);
        rust
    }

    /// Makes a registry with one package, `library`, which has a build script; returns its URL.
    fn publish(&self) -> String {
        let library = self.scene.env.repo_at("library");
        library.write("Cargo.toml", "[package]\nname = \"library\"\nversion = \"1.0.0\"\n");
        library.write("build.rs", "fn main() { println!(\"cargo:rerun-if-changed=build.rs\") }\n");
        library.write("src/lib.rs", "pub fn answer() -> u32 { 42 }\n");
        self.cargo(&library, &["package", "--no-verify", "--allow-dirty", "--offline"]);
        let root = self.scene.env.home().join("index");
        fs::create_dir_all(root.join("li/br")).expect("free");
        let package = library.path().join("target/package/library-1.0.0.crate");
        fs::copy(package, root.join("library-1.0.0.crate")).expect("it was packaged");
        let sums = self.scene.env.run("sha256sum", &root, ["library-1.0.0.crate"]);
        let sum = sums.ok().split(' ').next().expect("a line").to_owned();
        let line = format!(
            r#"{{"name":"library","vers":"1.0.0","deps":[],"cksum":"{sum}","features":{{}},"yanked":false}}"#
        );
        fs::write(root.join("li/br/library"), line + "\n").expect("free");
        let url = serve(root.clone());
        let config = format!(r#"{{"dl":"{url}/{{crate}}-{{version}}.crate"}}"#);
        fs::write(root.join("config.json"), config).expect("free");
        url
    }

    fn path(&self) -> String {
        format!("{}:{}", self.toolchain.display(), std::env::var("PATH").expect("it is set"))
    }

    /// Runs cargo as the user.
    fn cargo(&self, repo: &Repo, args: &[&str]) {
        let cargo = self.scene.env.command(self.toolchain.join("cargo"), repo.path());
        self.scene.env.run_command(cargo.args(args).env("PATH", self.path())).exits(0);
    }

    /// Returns a line in which `cargo` is cargo itself.
    fn line(&self, line: &str) -> String {
        line.replace("cargo ", &format!("env PATH=\"{}\" cargo ", self.path()))
    }

    /// Runs a session with this script; returns its id and its worktree.
    fn session(&self, script: &str) -> (String, Repo) {
        let id = self.scene.ready(&self.line(script));
        self.scene.await_free(&id);
        let worktree = self.scene.worktree(&id);
        (id, worktree)
    }

    /// Runs another turn of a session.
    fn turn(&self, id: &str, script: &str) {
        self.scene.studio(["send", id, &self.line(script)]).exits(0);
        self.scene.await_state(id, "ready");
        self.scene.await_free(id);
    }
}

#[test]
fn a_session_compiles_only_the_packages_of_the_repository() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    for (login, lock_addition) in [("", "# changed\n"), ("[registry]\ntoken = \"x\"\n", "")] {
        let rust = RustScene::new(login);
        // Cargo decides which of them fit to another lock file.
        let lock_file = rust.scene.repo.read("Cargo.lock");
        rust.scene.repo.write("Cargo.lock", format!("{lock_file}{lock_addition}"));
        let (id, worktree) = rust.session("sh cargo build --offline -v > seen 2>&1");
        let seen = worktree.read("seen");
        assert!(seen.contains("Fresh library") && seen.contains("Fresh other"), "{seen}");
        assert_eq!(seen.matches("Compiling").count(), 1, "{seen}");
        let logs = rust.scene.studio(["logs", &id]);
        logs.exits(0).output_contains("target has copies of the dependencies that your main");
    }
}

#[test]
fn a_session_gets_only_compiled_dependencies() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    let rust = RustScene::new("");
    rust.scene.repo.write("target/doc/index.html", "1\n");
    let (_, worktree) = rust.session("write a 1");
    let below = |root: &Path| -> Vec<String> {
        let list = rust.scene.env.run("find", root, ["target", "-type", "f", "-printf", "%p %n\n"]);
        list.ok().lines().map(str::to_owned).collect()
    };
    let (own, copied) = (below(rust.scene.repo.path()), below(worktree.path()));
    let count = |list: &[String], part: &str| list.iter().filter(|it| it.contains(part)).count();
    for part in ["deps/liblibrary-", ".fingerprint/library-", "deps/libother-"] {
        assert!(count(&copied, part) > 0, "{part}: {copied:?}");
        assert_eq!(count(&copied, part), count(&own, part), "{part}: {copied:?}");
    }
    for part in ["debug/own", "deps/own-", ".fingerprint/own-", "target/doc"] {
        assert!(count(&own, part) > 0 && count(&copied, part) == 0, "{part}: {copied:?}");
    }
    // A build script has two names.
    assert!(copied.iter().any(|it| it.ends_with("build-script-build 2")), "{copied:?}");
}

#[test]
fn a_check_uses_what_an_earlier_one_compiled() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    let rust = RustScene::new("");
    // The first landing needs no check; that of the second one compiles the library.
    let build = rust.line("cargo build --offline -v > target/log 2>&1");
    let check =
        format!("mkdir -p target; {build}; grep -q \"Fresh library\" target/log || test ! -e c");
    // A check in the background would hold the check worktree that has the earlier one's `target`.
    let settings = "caches = []\ncheck_caches = 'target'\nrecheck = false";
    rust.scene.configure(&format!("{settings}\nchecks = '{check}'"));
    let (first, _) = rust.session("write a 1");
    let (second, _) = rust.session("write b 1");
    let (third, worktree) = rust.session("sh cargo build --offline; write c 1");
    assert!(worktree.read("target/log").contains("Fresh library"), "the agent has compiled it");
    for id in [first, second, third] {
        rust.scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    }
}

#[test]
fn a_check_uses_what_the_main_checkout_compiled() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    let rust = RustScene::new("");
    let build = rust.line("cargo build --offline -v > target/log 2>&1");
    let check = format!("mkdir -p target; {build}; grep -q \"Fresh library\" target/log");
    rust.scene.configure(&format!("checks = '{check}'"));
    let ids = ["a", "b", "c"].map(|name| rust.session(&format!("write {name} 1")).0);
    for id in &ids[..2] {
        rust.scene.studio(["accept", id, "-m", "Land it"]).exits(0);
    }
    rust.scene.configure(&format!("caches = []\nchecks = '{check}'"));
    let refused = rust.scene.studio(["accept", &ids[2], "-m", "Land it"]);
    assert_ne!(refused.code, 0, "without the copy, the library is compiled");
}

#[test]
fn a_session_finds_the_downloads_where_the_users_directory_is_in_use() {
    let rust = RustScene::new("");
    let toolchains = rust.scene.env.home().join(".cargo/rustup");
    fs::create_dir(&toolchains).expect("free");
    let script =
        rust.line("sh cargo build --offline -v > seen 2>&1; sh echo \"$CARGO_HOME\" > home");
    let job = rust.scene.env.command(studio(), rust.scene.repo.path());
    let job = job.args(["exec", &script]).env("RUSTUP_HOME", &toolchains);
    let id = rust.scene.env.run_command(job).ok().to_owned();
    rust.scene.await_state(&id, "ready");
    rust.scene.await_free(&id);
    let worktree = rust.scene.worktree(&id);
    let seen = worktree.read("seen");
    assert!(seen.contains("Compiling library") && seen.contains("Compiling own"), "{seen}");
    assert!(worktree.read("home").contains("caches/agent/cargo"));
}

#[test]
fn programs_that_the_setup_installs_are_found() {
    let rust = RustScene::new("");
    let setup = rust.line("cargo install --offline --path .");
    rust.scene.configure(&format!("setup = '{setup}'\nchecks = 'test \"$(own)\" = 42'"));
    let (id, worktree) = rust.session("sh own > said");
    assert_eq!(worktree.read("said"), "42\n");
    rust.scene.studio(["accept", &id, "-m", "Say it"]).exits(0);
    assert!(!rust.scene.env.home().join(".cargo/bin/own").exists());
}

/// Tries to change the user's programs and downloads, and to lead the next turn to other files.
const ATTACK: &str = r#"
cd "$CARGO_HOME" || exit 1
echo evil > bin/tool; echo evil > bin/new; chmod 777 bin/tool; rm bin/tool; mv bin away
for source in registry/src/*/library-1.0.0; do
    test -f "$source/src/lib.rs" || exit 2
    echo evil > "$source/src/lib.rs"; chmod 777 "$source/src/lib.rs"; touch -d 2001-01-01 "$source"
    rm -r "$source/src"
done
echo evil > credentials.toml; echo evil > config.toml; rm -f env; mkfifo env
own=$CARGO_INSTALL_ROOT
mv "$own" "$own.old"; rm -r "$own/../others/go"; ln -s "$HOME" "$own/../others/go"; rm -r "$own/bin"; ln -s "$HOME" "$own/bin"; ln -s "$HOME" "$own/link"
shared=$own/../../cargo-downloads
echo evil > "$shared/git/new"; rm -r "$shared/registry/src" "$shared/git/db"; rm -r "$shared"; mv "$own/../../cargo-downloads" "$own/../../away"
touch "$own/../planted" "$own/../../planted"
rm -r registry git; ln -s "$HOME" registry; ln -s /etc git
ls -d "$own/../../"* > "$1/seen"
"#;

#[test]
fn the_users_programs_and_downloads_stay_as_they_are() {
    if !base::sandbox::namespaces_are_possible() {
        return;
    }
    let rust = RustScene::new("[registry]\ntoken = \"x\"\n");
    let users = rust.scene.env.home().join(".cargo");
    fs::write(users.join("bin/tool"), "the user's\n").expect("free");
    fs::write(users.join("config.toml"), "[term]\nquiet = false\n").expect("free");
    fs::write(users.join("env"), "export A=1\n").expect("free");
    let files = |directory: &Path| {
        let list = rust.scene.env.run("find", directory, [".", "-printf", "%P %m %s %T@ %l\n"]);
        let mut lines: Vec<String> = list.ok().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = files(&users);
    rust.scene.repo.commit_file("attack.sh", ATTACK);
    let (id, worktree) = rust.session("sh sh attack.sh \"$PWD\" 2>&1 | cat > errors");
    let seen = worktree.read("seen");
    assert!(seen.contains("cargo-downloads") && !seen.contains("planted"), "{seen}");
    assert!(!seen.contains("away") && !seen.contains(".old"), "{seen}");
    let errors = worktree.read("errors");
    assert!(errors.contains("Read-only file system"), "{errors}");
    // What the session put in the places of its own directories leads nowhere.
    rust.turn(
        &id,
        "sh sh attack.sh \"$PWD\" 2>&1 | cat > errors; sh ls -d $CARGO_HOME/bin/* > seen",
    );
    assert!(worktree.read("seen").ends_with("/bin/tool\n"), "{}", worktree.read("seen"));
    assert_eq!(files(&users), before);
    assert!(!rust.scene.env.home().join("mod").exists());
    assert_eq!(fs::read_to_string(users.join("env")).expect("it is there"), "export A=1\n");
}
