//! Writes what is made from the command line's definition into packaging/: the man pages and the completions.
//!
//!     cargo run -p cgleaf-tests --bin generate
//!
//! They are checked in, so that a package can be built without running what it builds; a test fails when they are stale.

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let folder = cgleaf_tests::generated::folder();
    for (name, text) in cgleaf_tests::generated::files() {
        let path = folder.join(&name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("make {}", parent.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}
