//! The folder in which a bare `ratekeeper` finds its settings and rules.

use std::path::{Path, PathBuf};

/// The folder a bare run serves: `./config` where it is one of ours, else `/etc/ratekeeper`.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    folder: Option<PathBuf>,
    beside: PathBuf,
}

/// The name of the settings file.
const SETTINGS: &str = "ratekeeper.yaml";
/// The name of the folder of rules.
const RULES: &str = "rules";

impl Home {
    /// Looks beside the working directory, then where packages put it.
    pub(crate) fn find() -> Home {
        Home::find_in(
            &[Path::new("config"), Path::new("/etc/ratekeeper")],
            Path::new(SETTINGS),
        )
    }

    /// The first of `folders` that is one of ours; `beside` is the settings file that goes before its.
    pub(crate) fn find_in(folders: &[&Path], beside: &Path) -> Home {
        let ours = |folder: &&&Path| folder.join(RULES).exists() || folder.join(SETTINGS).exists();
        Home {
            folder: folders.iter().find(ours).map(|folder| folder.to_path_buf()),
            beside: beside.to_path_buf(),
        }
    }

    /// The settings file to read when none is named: `./ratekeeper.yaml`, else the one at home.
    pub(crate) fn settings_file(&self) -> Option<PathBuf> {
        let home = self.folder.as_ref().map(|folder| folder.join(SETTINGS));
        [Some(self.beside.clone()), home]
            .into_iter()
            .flatten()
            .find(|path| path.is_file())
    }

    /// The rules to serve when none are named.
    pub(crate) fn rules(&self) -> Option<PathBuf> {
        self.folder
            .as_ref()
            .map(|folder| folder.join(RULES))
            .filter(|path| path.exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_is_one_of_ours_is_home() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        std::fs::create_dir_all(&first)?;
        std::fs::create_dir_all(second.join(RULES))?;
        let beside = root.path().join(SETTINGS);
        let home = Home::find_in(&[&first, &second], &beside);
        assert_eq!(home.rules(), Some(second.join(RULES)));
        assert_eq!(home.settings_file(), None);
        std::fs::write(second.join(SETTINGS), "")?;
        assert_eq!(home.settings_file(), Some(second.join(SETTINGS)));
        std::fs::write(&beside, "")?;
        assert_eq!(home.settings_file(), Some(beside.clone()));
        std::fs::write(first.join(SETTINGS), "")?;
        assert_eq!(Home::find_in(&[&first, &second], &beside).rules(), None);
        Ok(())
    }
}
