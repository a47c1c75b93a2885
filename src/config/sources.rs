//! Sources of a configuration: the file, the environment, which overrides it, and flags, which override both.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::reader::{FieldError, Location, Reader, may_be_secret, near, quoted};
use super::shape::{Content, Describe};
use super::values::matches;
use super::{Config, ConfigError, placement, pools, print, profiles};
use tolerarch_support::environment::Environment;
use tolerarch_support::file;

#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// Environment, including variables of other programs.
    pub environment: Environment,
    pub flags: Vec<Flag>,
    /// True if an unknown variable with the prefix is a warning, not a fault, as for commands in people's shells.
    pub tolerant: bool,
}

#[derive(Clone, Debug)]
pub struct Flag {
    /// Name on the command line: `--listen`.
    pub name: &'static str,
    /// Key that the flag sets: `server.listen`.
    pub path: &'static str,
    pub value: String,
}

/// Configuration, with the source of each value.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub(super) reader: Reader,
    pub(super) file: Option<PathBuf>,
}

impl Sources {
    /// Prefix of the variables that set keys.
    pub const PREFIX: &str = "TOLERARCH_";

    /// Reads all sources. The file may be a pipe, such as a shell's `<(…)`.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        self.load_by(file::read_or_stream)
    }

    /// Reads all sources again. A pipe is refused: it has been read already, and would block forever.
    pub fn load_again(&self) -> Result<Loaded, ConfigError> {
        self.load_by(file::read)
    }

    fn load_by(&self, read: fn(&Path) -> io::Result<Vec<u8>>) -> Result<Loaded, ConfigError> {
        let text = match &self.file {
            None => String::new(),
            Some(file) => read(file)
                .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
                .map_err(|cause| ConfigError::Read {
                    file: file.clone(),
                    cause,
                })?,
        };
        self.read(&text).map_err(|faults| ConfigError::Faults {
            file: self.file.clone(),
            faults,
        })
    }

    /// Reads this text of a file, the environment and the flags.
    pub fn read(&self, text: &str) -> Result<Loaded, Vec<FieldError>> {
        let mut config = Config::default();
        let mut reader = Reader::default();
        let document = reader.document(text, config.describe());
        self.environment(&mut config, &mut reader);
        for Flag { name, path, value } in &self.flags {
            reader.set(&mut config, path, value, Location::Flag(name));
        }
        profiles::inherit(&mut config, document.as_ref(), &mut reader);
        placement::check_discovery(&mut config, &mut reader);
        pools::check_selection(&config, &mut reader);
        reader.check_wholes(config.describe());
        // By the lines of the file, followed by those of the environment and the flags.
        reader
            .faults
            .sort_by(|one, other| one.location.cmp(&other.location));
        if reader.faults.is_empty() {
            Ok(Loaded {
                config,
                reader,
                file: self.file.clone(),
            })
        } else {
            Err(reader.faults)
        }
    }

    /// Applies the environment, except for the variables that Kubernetes adds for a Service named tolerarch.
    fn environment(&self, config: &mut Config, reader: &mut Reader) {
        let mut keys = BTreeMap::new();
        // Variables of lists and named entries, which only the file can set.
        let mut only_in_file = Vec::new();
        config
            .describe()
            .walk("", &mut |path, description| match description.content {
                _ if path.contains('[') => {}
                Content::Section(_) => {}
                Content::Entries(..) => only_in_file.push(variable(path)),
                Content::Value(_) => drop(keys.insert(variable(path), path.to_owned())),
            });
        let without_prefix = |(name, text): (String, String)| {
            Some((name.strip_prefix(Self::PREFIX)?.to_owned(), text))
        };
        let texts = self.environment.texts();
        let variables: BTreeMap<_, _> = texts.filter_map(without_prefix).collect();
        for (variable, text) in variables {
            let name = format!("{}{variable}", Self::PREFIX);
            let location = Location::Variable(name.clone());
            if let Some(path) = keys.get(&variable) {
                reader.set(config, path, &text, location);
                continue;
            }
            if is_service_link(&name) {
                continue;
            }
            let is_only_in_file = only_in_file
                .iter()
                .any(|key| variable == *key || variable.starts_with(&format!("{key}_")));
            let message = match near(&variable, keys.keys().map(String::as_str)) {
                Some(near) if !is_only_in_file => format!(
                    "no key has this variable; did you mean {}{near}?",
                    Self::PREFIX
                ),
                _ => "no key has this variable; pools and hosts are set in the file".to_owned(),
            };
            let errors = if self.tolerant {
                &mut reader.warnings
            } else {
                &mut reader.faults
            };
            errors.push(FieldError {
                path: name,
                location,
                message,
            });
        }
    }
}

impl Config {
    pub fn parse(text: &str) -> Result<Self, Vec<FieldError>> {
        Sources::default().read(text).map(|loaded| loaded.config)
    }
}

impl Loaded {
    pub fn warnings(&self) -> &[FieldError] {
        &self.reader.warnings
    }

    pub fn log_warnings(&self) {
        for warning in self.warnings() {
            tracing::warn!(%warning, "the configuration is valid, but probably not what was meant");
        }
    }

    /// Renders the configuration as a file, with the source of each value in a comment.
    pub fn to_yaml(&self) -> String {
        let file = self
            .file
            .as_deref()
            .map(|file| file.display().to_string())
            .unwrap_or_default();
        print::print(self.config.clone(), Some((&file, &self.reader.locations)))
    }
}

impl Reader {
    /// Sets the value at `path` to a text. Items of a list are separated by commas.
    fn set(&mut self, config: &mut Config, path: &str, text: &str, location: Location) {
        config.describe().values(&mut |at, _, value| {
            if at != path {
                return;
            }
            let items: Vec<_> = if !value.accepted.is_list {
                vec![Some(text)]
            } else if text.trim().is_empty() {
                Vec::new()
            } else {
                text.split(',').map(|item| Some(item.trim())).collect()
            };
            for index in (value.set_texts)(&items) {
                let refused = match items[index] {
                    Some(item) if !may_be_secret(text) => item,
                    // A password may have commas.
                    _ => text,
                };
                let expected = value.accepted.expected(items[index]);
                self.fault_at(
                    path,
                    location.clone(),
                    format!("found {}, expected {expected}", quoted(refused)),
                );
            }
            self.locations.insert(path.to_owned(), location.clone());
        });
    }
}

/// Returns the name of a key's variable after the prefix: `CACHE__TAG_TTL` for `cache.tagTtl`.
fn variable(path: &str) -> String {
    let letter = |letter: char| match letter {
        '.' => "__".to_owned(),
        'A'..='Z' => format!("_{letter}"),
        _ => letter.to_ascii_uppercase().to_string(),
    };
    path.chars().map(letter).collect()
}

/// Returns whether Kubernetes sets this variable for a Service whose name begins with tolerarch (`getServiceEnvVarMap`,
/// `makeLinkVariables` of pkg/kubelet/envvars): `…_SERVICE_HOST`, `…_SERVICE_PORT[_NAME]`, `…_PORT[_443_TCP[_ADDR]]`.
fn is_service_link(name: &str) -> bool {
    let link =
        r"_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$";
    matches(link, name)
}
