//! Plans as the other tools write them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn files(all: &[(&str, &str)]) -> Vec<SourceFile> {
    let file = |(name, text): &(&str, &str)| SourceFile {
        name: (*name).to_owned(),
        path: format!("plans/{name}"),
        text: (*text).to_owned(),
    };
    all.iter().map(file).collect()
}

/// Returns id, whether it is done, its dependencies and its requirements, for each task.
fn rows(plan: &ImportedPlan) -> Vec<String> {
    let row = |task: &Task| {
        let done = if task.done { " done" } else { "" };
        let list = |name: &str, list: &[String]| match list {
            [] => String::new(),
            list => format!(" {name} {}", list.join(",")),
        };
        let (after, serves) = (list("after", &task.after), list("for", &task.requirements));
        format!("{}{done}{after}{serves}", task.id)
    };
    plan.tasks.iter().map(row).collect()
}

fn errors(result: Result<ImportedPlan, Vec<ImportError>>) -> Vec<(String, usize, String)> {
    let errors = result.unwrap_err().into_iter();
    errors.map(|error| (error.file, error.line, error.what)).collect()
}

const SPEC_KIT_SPEC: &str = "\
# Feature Specification: Photo Albums

**Feature Branch**: `001-photo-albums`
**Status**: Draft

## User Scenarios & Testing *(mandatory)*

<!-- Each story can be tested
     on its own. -->

### User Story 1 - Create an album (Priority: P1)

A user creates an album.

**Why this priority**: Nothing works without it.

**Acceptance Scenarios**:

1. **Given** no album, **When** the user creates one, **Then** it is listed.
2. **Given** an album, **When** its name is taken, **Then** an error is shown.

### User Story 2 - Drag albums (Priority: P2)

**Acceptance Scenarios**:

1. **Given** two albums, **When** one is dragged, **Then** the order changes.

### Edge Cases

- What happens when there are no photos?

## Requirements *(mandatory)*

### Functional Requirements

- **FR-001**: System MUST store albums in SQLite
  and never upload them
- **FR-002**: System MUST group photos by date

## Success Criteria *(mandatory)*

- **SC-001**: 1,000 photos load in 2 s
";

const SPEC_KIT_TASKS: &str = "\
# Tasks: Photo Albums

## Format: `[ID] [P?] [Story] Description`

- **[P]**: Can run in parallel

## Phase 1: Setup

- [x] T001 Create the project structure
- [X] T002 [P] Configure the linter

## Phase 2: User Story 1 - Create an album (Priority: P1)

```
- [ ] T999 an example in code
```

- [ ] T003 [P] [US1] Create the Album model in src/models/album.py
- [ ] T004 [P] [US1] Create the Photo model in src/models/photo.py
- [ ] T005 [US1] Implement the service in src/services/albums.py

## Phase 3: User Story 2

- [ ] T006 [P] [US2] Reorder albums in src/services/order.py
";

#[test]
fn a_spec_kit_feature_becomes_a_plan() {
    let files =
        files(&[("spec.md", SPEC_KIT_SPEC), ("plan.md", "# Plan"), ("tasks.md", SPEC_KIT_TASKS)]);
    let plan = read(PlanFormat::SpecKit, &files, None).unwrap();
    assert_eq!(plan.title, "Photo Albums");
    let texts: Vec<&str> = plan.requirements.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "US1: Create an album (Priority: P1) Given no album, When the user creates one, Then it \
             is listed. Given an album, When its name is taken, Then an error is shown.",
            "US2: Drag albums (Priority: P2) Given two albums, When one is dragged, Then the order \
             changes.",
            "FR-001: System MUST store albums in SQLite and never upload them",
            "FR-002: System MUST group photos by date",
            "SC-001: 1,000 photos load in 2 s",
        ]
    );
    assert_eq!(
        rows(&plan),
        [
            "T001 done",
            "T002 done after T001",
            "T003 after T002 for R1",
            "T004 after T002 for R1",
            "T005 after T003,T004 for R1",
            "T006 after T005 for R2",
            "remaining-requirements after T006 for R3,R4,R5",
        ]
    );
    assert_eq!(
        plan.tasks[2].text,
        "Create the Album model in src/models/album.py\n\nFor reference: the specification is in \
         `plans/spec.md`, the plan is in `plans/plan.md`."
    );
    let again = crate::task::from_toml(&crate::task::to_toml(&plan.tasks)).unwrap();
    assert_eq!(again.iter().map(|it| &it.id).collect::<Vec<_>>().len(), plan.tasks.len());
}

#[test]
fn errors_of_spec_kit_have_their_lines() {
    let tasks = "- [ ] T001 a\n- [?] T002 b\n- [ ] T003 [P]\n";
    let found =
        errors(read(PlanFormat::SpecKit, &files(&[("spec.md", ""), ("tasks.md", tasks)]), None));
    assert_eq!(
        found,
        [
            (
                "tasks.md".into(),
                2,
                "invalid checkbox `[?]` of task T002: use `[ ]` or `[x]`".into()
            ),
            ("tasks.md".into(), 3, "task T003 has no text".into()),
        ]
    );
    let twice = "- [ ] T001 a\n- [ ] T001 b\n";
    let found = errors(read(PlanFormat::SpecKit, &files(&[("tasks.md", twice)]), None));
    assert_eq!(
        (found[0].1, found[0].2.contains("duplicate task id `T001`")),
        (2, true),
        "{found:?}"
    );
    let found = errors(read(PlanFormat::SpecKit, &files(&[("tasks.md", "# Tasks\n")]), None));
    assert_eq!(found, [("tasks.md".into(), 1, "it has no task".into())]);
}

#[test]
fn an_openspec_change_becomes_a_plan() {
    let delta = "\
## ADDED Requirements

### Requirement: Two-Factor Authentication
The system MUST require a second factor.

#### Scenario: OTP required
- **WHEN** a user submits valid credentials
- **THEN** an OTP challenge is required

## REMOVED Requirements
### Requirement: Remember me
**Reason**: It is unsafe.

## RENAMED Requirements
- FROM: `### Requirement: Login`
- TO: `### Requirement: User Authentication`
";
    let tasks = "\
## 1. Database Setup
- [x] 1.1 Add the OTP secret column
- [ ] 1.2 Create the verification table

## 2. Backend
- [ ] 2.1 Add the endpoint
";
    let files = files(&[
        ("proposal.md", "# Change: Add 2FA\n## Why\nBecause.\n"),
        ("tasks.md", tasks),
        ("specs/auth/spec.md", delta),
    ]);
    let plan = read(PlanFormat::Openspec, &files, None).unwrap();
    assert_eq!(plan.title, "Add 2FA");
    let texts: Vec<&str> = plan.requirements.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "ADDED in auth: Two-Factor Authentication. The system MUST require a second factor. \
             Scenario OTP required: WHEN a user submits valid credentials THEN an OTP challenge is \
             required",
            "REMOVED in auth: Remember me. Reason: It is unsafe.",
            "RENAMED in auth: FROM: ### Requirement: Login TO: ### Requirement: User Authentication",
        ]
    );
    assert_eq!(
        rows(&plan),
        [
            "1.1 done",
            "1.2 after 1.1",
            "2.1 after 1.2",
            "remaining-requirements after 2.1 for R1,R2,R3",
        ]
    );
    assert!(plan.tasks[2].text.starts_with("2. Backend: Add the endpoint\n"));

    let outside = "# Spec\n\n### Requirement: X\nIt SHALL.\n";
    let bad = super::tests::files(&[("tasks.md", "- [ ] 1.1 a"), ("specs/a/spec.md", outside)]);
    let found = errors(read(PlanFormat::Openspec, &bad, None));
    assert_eq!((found[0].0.as_str(), found[0].1), ("specs/a/spec.md", 3), "{found:?}");
}

#[test]
fn a_kiro_spec_becomes_a_plan() {
    let requirements = "\
# Requirements Document

## Introduction

A parser.

### Requirement 1: Reading

**User Story:** As a user, I want to read files.

#### Acceptance Criteria

1. WHEN a file is given THEN the system SHALL read it
2. IF it is missing THEN the system SHALL fail
   with its name

### Requirement 2

#### Acceptance Criteria

1. WHILE it reads THE system SHALL show progress
";
    let tasks = "\
# Implementation Plan

- [x] 1. Set up the project
  - Create the folders
  - _Requirements: 1.1_

- [ ] 2. Implement the reader
  - [-] 2.1 Read files
    - Use a buffer
    - _Requirements: 1.1, 1.2_
  - [ ]* 2.2 Write property tests
    - _Requirements: 1.2_
- [ ] 3. Show progress
  - _Requirements: 2_
";
    let all = files(&[("requirements.md", requirements), ("design.md", ""), ("tasks.md", tasks)]);
    let plan = read(PlanFormat::Kiro, &all, None).unwrap();
    let texts: Vec<&str> = plan.requirements.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "1.1: WHEN a file is given THEN the system SHALL read it",
            "1.2: IF it is missing THEN the system SHALL fail with its name",
            "2.1: WHILE it reads THE system SHALL show progress",
        ]
    );
    assert_eq!(rows(&plan), ["1 done for R1", "2.1 after 1 for R1,R2", "3 after 2.1 for R3"]);
    assert!(plan.tasks[1].text.starts_with("Implement the reader: Read files\n- Use a buffer\n"));
    assert_eq!(plan.notes, ["task 2.2 is optional and was left out"]);

    let bad = files(&[
        ("requirements.md", requirements),
        ("tasks.md", "- [ ] 1. A\n  - _Requirements: 9.9_\n"),
    ]);
    let found = errors(read(PlanFormat::Kiro, &bad, None));
    assert_eq!(
        found,
        [(
            "tasks.md".into(),
            1,
            "task 1 names requirement 9.9, which is not in requirements.md".into()
        )]
    );
}

const TASKMASTER: &str = r#"{
  "master": {
    "tasks": [
      {
        "id": 1,
        "title": "Set up the repository",
        "description": "Create it.",
        "status": "done",
        "priority": "high",
        "dependencies": [],
        "details": "Use git.",
        "testStrategy": "It builds.",
        "subtasks": []
      },
      {
        "id": 2,
        "title": "Write the API",
        "description": "All routes.",
        "status": "in-progress",
        "dependencies": [1],
        "details": "",
        "testStrategy": "",
        "subtasks": [
          {"id": 1, "title": "Users", "description": "", "status": "done", "dependencies": []},
          {"id": 2, "title": "Posts", "description": "", "status": "pending", "dependencies": [1, "1.0"]}
        ]
      },
      {"id": "3", "title": "Deploy", "status": "pending", "dependencies": ["2", 4]},
      {"id": 4, "title": "Marketing", "status": "deferred", "dependencies": []}
    ],
    "metadata": {"created": "2026-01-01"}
  },
  "feature-x": {"tasks": [{"id": 1, "title": "Only this", "status": "pending", "dependencies": []}]}
}"#;

#[test]
fn a_list_of_task_master_becomes_a_plan() {
    let text = TASKMASTER.replace(", \"1.0\"", "");
    let plan = read(PlanFormat::Taskmaster, &files(&[("tasks.json", &text)]), None).unwrap();
    assert_eq!(plan.title, "master");
    let texts: Vec<&str> = plan.requirements.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(
        texts,
        ["Set up the repository: Create it.", "Write the API: All routes.", "Deploy"]
    );
    assert_eq!(
        rows(&plan),
        [
            "1 done for R1",
            "2.1 done after 1 for R2",
            "2.2 after 1,2.1 for R2",
            "3 after 2.1,2.2 for R3"
        ]
    );
    assert_eq!(
        plan.tasks[0].text,
        "Set up the repository\n\nCreate it.\n\nUse git.\n\nTests: It builds."
    );
    assert_eq!(plan.notes, ["task 4 is deferred and was left out"]);
    let other = read(PlanFormat::Taskmaster, &files(&[("tasks.json", &text)]), Some("feature-x"));
    assert_eq!(rows(&other.unwrap()), ["1 for R1"]);
    let old = r#"{"tasks": [{"id": 1, "title": "Old", "dependencies": []}]}"#;
    assert!(read(PlanFormat::Taskmaster, &files(&[("tasks.json", old)]), None).is_ok());
}

#[test]
fn errors_of_task_master_have_their_lines() {
    let at = |text: &str, tag| {
        errors(read(PlanFormat::Taskmaster, &files(&[("tasks.json", text)]), tag))
    };
    assert_eq!(at(TASKMASTER, None)[0].1, 25, "the subtask `Posts`");
    assert_eq!(at("{\n  \"master\": {\n", None)[0].1, 3);
    let found = at(TASKMASTER, Some("y"));
    assert_eq!(found[0].2, "no such tag: `y` (it has feature-x, master)");
    let two = TASKMASTER.replace("\"master\"", "\"main\"");
    assert_eq!(at(&two, None)[0].2, "it has several tags, name one: feature-x, main");
}

#[test]
fn formats_are_detected_by_their_files() {
    for (names, format) in [
        (&["spec.md", "plan.md", "tasks.md"][..], Some(PlanFormat::SpecKit)),
        (&["proposal.md", "tasks.md", "specs/a/spec.md"], Some(PlanFormat::Openspec)),
        (&["requirements.md", "design.md", "tasks.md"], Some(PlanFormat::Kiro)),
        (&["tasks.json"], Some(PlanFormat::Taskmaster)),
        (&["README.md", "tasks.md"], None),
    ] {
        assert_eq!(detect(names), format, "{names:?}");
    }
}

proptest! {
    /// Whatever the files contain: no panic; and a plan keeps the order of its tasks, with unique
    /// ids and known references.
    #[test]
    fn any_files_are_read_or_refused(
        tasks in "((- |[0-9]\\. |  |## |)(\\[[ xX?-]\\]\\*? )?(T[0-9]{1,3} |[0-9]\\.[0-9] |\\[P\\] |\\[US1\\] |_Requirements: 1\\.1_|)[a-cé]{0,3}\n){0,12}",
        spec in "((### User Story 1 |- \\*\\*FR-1\\*\\*: |### Requirement: |### Requirement 1|#### Acceptance Criteria|## ADDED Requirements|#### Scenario: |[0-9]\\. |```|<!--|-->|  |)[a-cé]{0,3}\n){0,12}",
        json in "(\\{\"m\":|\\{\"tasks\":|\\[|\\]|\\}|,|\\{\"id\": ?[0-9],\"title\":\"a\"\\}){0,10}",
    ) {
        for (format, name) in [
            (PlanFormat::SpecKit, "spec.md"),
            (PlanFormat::Openspec, "specs/a/spec.md"),
            (PlanFormat::Kiro, "requirements.md"),
            (PlanFormat::Taskmaster, "spec.md"),
        ] {
            let all = files(&[(name, &spec), ("tasks.md", &tasks), ("tasks.json", &json)]);
            match read(format, &all, None) {
                Ok(plan) => {
                    let ids: BTreeSet<&String> = plan.tasks.iter().map(|it| &it.id).collect();
                    prop_assert_eq!(ids.len(), plan.tasks.len());
                    let lines: Vec<usize> = plan.tasks.iter().map(|it| it.line).collect();
                    if format != PlanFormat::Taskmaster {
                        prop_assert!(lines.is_sorted(), "{:?}", lines);
                    }
                    let known: BTreeSet<&String> = plan.requirements.iter().map(|it| &it.id).collect();
                    let named = plan.tasks.iter().flat_map(|it| &it.requirements);
                    prop_assert!(named.into_iter().all(|id| known.contains(id)));
                    let covered = plan.requirements.iter().all(|it| {
                        plan.tasks.iter().any(|task| task.requirements.contains(&it.id))
                    });
                    prop_assert!(covered);
                }
                Err(errors) => prop_assert!(!errors.is_empty() && errors.iter().all(|it| it.line > 0)),
            }
        }
    }
}
