//! The PKGBUILD. There is no Arch in the lab, so its own makepkg(8) and pacman(8), as Debian packages them, build and install it
//! on Debian, in a guest that is thrown away.

use cgleaf_tests::lab::GuestOptions;
use cgleaf_tests::packaging::{Installed, build, fetched, own_folder, static_programs};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

/// makepkg refuses to run as root. What it would depend on is cargo, which pacman's database does not have here; and the
/// programs are built already.
fn make(system: &Installed, revision: &str) {
    system.user(&format!(
        "cp -r /packages/{revision}/arch ~/{revision} && cd ~/{revision} && CGLEAF_BINARIES=/programs makepkg --nodeps 2>&1"
    ));
}

fn pacman(system: &Installed, words: &str) -> String {
    system.root(&format!("cd /home/lab && pacman --noconfirm {words}"))
}

#[test]
fn makepkg_builds_what_pacman_installs_upgrades_and_removes() {
    require!(Systemd, Cc, Downloads);
    let Some(programs) = static_programs() else {
        return;
    };
    let out = own_folder("arch");
    for revision in ["1", "2"] {
        build("arch", revision, &out.join(revision));
    }
    let words = [
        "pacman",
        "makepkg",
        "pacman-package-manager",
        "libarchive-tools",
    ];
    let Some(tools) = fetched("fetch-debs", &words) else {
        return;
    };
    let options = GuestOptions::new()
        .bind(out, "/packages")
        .bind(programs, "/programs")
        .bind(tools, "/pacman");
    let system = Installed::up(&options);
    system.root("cp -a /pacman/usr/. /usr/ && cp -a /pacman/etc/. /etc/ && ldconfig && mkdir -p /var/lib/pacman");
    make(&system, "1");
    make(&system, "2");
    lives_as_a_service(&system);
}

fn lives_as_a_service(system: &Installed) {
    let before = system.traces();
    pacman(system, "--upgrade 1/cgleaf-*.pkg.tar.gz");
    let checked = pacman(system, "--query --check --check cgleaf cgleaf-helper");
    assert_eq!(checked.matches(", 0 altered files").count(), 2, "{checked}");
    system.user("zcat /usr/share/man/man8/cgleaf-helper@.socket.8.gz | grep -q cgleaf");
    system.user("cgleaf start --session s -- sleep 3600");
    let first = system.helpers_pid();
    assert_ne!(first, "0", "the user's service has the session");

    pacman(system, "--upgrade 2/cgleaf-*.pkg.tar.gz");
    let version = format!("{}-2", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        pacman(system, "--query cgleaf cgleaf-helper"),
        format!("cgleaf {version}\ncgleaf-helper {version}\n")
    );
    wait_until("the upgrade starts the helper anew", || {
        system.helpers_pid() != first
    });
    assert_eq!(system.sessions(), [("s".to_owned(), "running".to_owned())]);
    system.user("cgleaf freeze s && cgleaf thaw s");

    pacman(system, "--remove --nosave cgleaf cgleaf-helper");
    assert_eq!(system.running("sleep 3600"), 1, "no removal ends a session");
    assert_eq!(system.traces(), before, "nothing is left");
}
