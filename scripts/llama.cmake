# Settings of llama.cpp's build that its Rust bindings have no option for; .cargo/config.toml passes them.
# Its library `common` takes longer to compile than all the rest, and nothing links it.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
