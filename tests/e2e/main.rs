//! End-to-end tests: studio, g3 over ACP, a scripted model over HTTP, real git.

mod canaries;
mod fixtures;
mod g3_under_studio;
mod git_in_sandbox;
mod included_files;
mod interactive;
mod journey;
mod login;
mod permissions;
mod personas;
mod plan;
mod requirements;
mod sdlc;
mod workspace_memory;
