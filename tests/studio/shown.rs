//! What people read: a day with studio, word for word. A changed sentence shows up here as a
//! difference; `INSTA_UPDATE=always cargo nextest run -E 'test(shown)'` writes it down anew.

use testkit::env::Ran;
use testkit::transcript::Transcript;

use crate::scene::Scene;

#[test]
fn a_day_from_the_first_task_to_the_undone_landing() {
    let scene = Scene::new();
    let mut day = Day::new(&scene);
    let id = "write-hello-txt-hi";
    day.types(["list"]);
    day.types(["run", "write hello.txt hi"]);
    day.types(["list"]);
    day.types(["status", id]);
    day.types(["explain", id]);
    day.types(["diff", id]);
    day.types(["diff", id, "--stat"]);
    day.types(["logs", id]);
    day.types(["accept", id, "-m", "Say hi"]);
    day.types(["list"]);
    day.types(["list", "--all"]);
    day.types(["undo"]);
    day.types(["discard", id]);
    day.types(["operations"]);
    day.types(["doctor"]);
    day.types(["gc", "--dry-run"]);
    insta::assert_snapshot!(day.transcript.text());
}

#[test]
fn what_goes_wrong_is_told_with_a_way_out() {
    let scene = Scene::new();
    let mut day = Day::new(&scene);
    let id = scene.ready("write README.md theirs");
    scene.await_free(&id);
    scene.repo.commit_file("README.md", "# Ours\n");
    day.types(["accept", &id, "-m", "Clash"]);
    day.types(["status", &id]);
    day.types(["status", "nope"]);
    day.types(["run"]);
    day.types(["run", "x", "--agent", "nobody"]);
    day.types(["run", "x", "--base", "nowhere"]);
    day.types(["undo"]);
    day.types(["frobnicate"]);
    day.types(["run", "exit 3"]);
    day.types(["run", "nothing"]);
    insta::assert_snapshot!(day.transcript.text());
}

/// Somebody who types commands.
struct Day<'a> {
    scene: &'a Scene,
    transcript: Transcript,
}

impl Day<'_> {
    fn new(scene: &Scene) -> Day<'_> {
        Day { scene, transcript: Transcript::of(&scene.env) }
    }

    fn types<const N: usize>(&mut self, args: [&str; N]) {
        let ran: Ran = self.scene.studio(args);
        self.transcript.add("studio", &args, &ran);
    }
}
