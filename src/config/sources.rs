//! Where a configuration comes from: the file, the environment over it, flags over both.

use std::io;
use std::path::{Path, PathBuf};

use super::reader::{FieldError, Location, Reader, may_be_secret, nearest, quoted};
use super::shape::{Content, Slot, leaves};
use super::{Config, ConfigError, placement, print, profiles};
use tolerarch_support::environment::Environment;
use tolerarch_support::file;

const PREFIX: &str = "TOLERARCH_";

/// Where a configuration comes from, in rising order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// The environment, with variables that are not ours.
    pub environment: Environment,
    pub flags: Vec<Flag>,
    /// Whether a variable that looks like one of ours and is none is a warning instead of a fault: the commands run in
    /// people's shells.
    pub tolerant: bool,
}

#[derive(Clone, Debug)]
pub struct Flag {
    /// As it is written: `--listen`.
    pub name: &'static str,
    /// The key that it sets: `server.listen`.
    pub path: &'static str,
    pub value: String,
}

/// A configuration, and where each of its values comes from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub(super) reader: Reader,
    pub(super) file: Option<PathBuf>,
}

impl Sources {
    /// Reads all of it. The file may be a pipe, such as a shell's `<(…)`.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        self.load_by(file::read_or_stream)
    }

    /// Reads all of it once more: by now, a pipe would be waited for without an end.
    pub fn load_again(&self) -> Result<Loaded, ConfigError> {
        self.load_by(file::read)
    }

    fn load_by(&self, read: fn(&Path) -> io::Result<Vec<u8>>) -> Result<Loaded, ConfigError> {
        let text = match &self.file {
            None => String::new(),
            Some(file) => read(file)
                .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
                .map_err(|cause| ConfigError::Read { file: file.clone(), cause })?,
        };
        self.read(&text).map_err(|faults| ConfigError::Faults { file: self.file.clone(), faults })
    }

    /// Reads a file of this text, the environment and the flags.
    pub fn read(&self, text: &str) -> Result<Loaded, Vec<FieldError>> {
        let (mut config, mut reader) = (Config::default(), Reader::default());
        reader.document(text, &mut config);
        let variables: Vec<_> = self.environment.texts().collect();
        reader.environment(&variables, self.tolerant, &mut config);
        for Flag { name, path, value } in &self.flags {
            reader.set(&mut config, path, value, &Location::Flag(name));
        }
        profiles::inherit(&mut config, &mut reader);
        placement::check_discovery(&config, &mut reader);
        reader.object(config.shape());
        match reader.take_faults() {
            faults if !faults.is_empty() => Err(faults),
            _ => Ok(Loaded { config, reader, file: self.file.clone() }),
        }
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

    /// The whole configuration as a file, with a comment where each value comes from.
    pub fn to_yaml(&self) -> String {
        let file = self.file.as_deref().map(|file| file.display().to_string()).unwrap_or_default();
        print::effective(&self.config, &file, &self.reader.places)
    }
}

impl Reader {
    /// Takes over what the environment says, except for the variables that Kubernetes adds for a Service called tolerarch.
    pub(super) fn environment(
        &mut self,
        variables: &[(String, String)],
        tolerant: bool,
        slot: &mut dyn Slot,
    ) {
        let (mut known, mut scattered) = (Vec::new(), Vec::new());
        leaves(slot.shape(), "", false, &mut |path, _, content| match content {
            Content::Entries(_) => scattered.push(variable(path)),
            _ => known.push((variable(path), path.to_owned())),
        });
        let mut own: Vec<_> = variables.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        own.sort();
        for (name, text) in own {
            let place = Location::Variable(name.clone());
            if let Some((_, path)) = known.iter().find(|(variable, _)| variable == name) {
                self.set(slot, path, text, &place);
            } else if !is_service_link(name) {
                let in_file = scattered.iter().any(|variable| {
                    name.strip_prefix(&**variable)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
                });
                let bare = |name: &'_ String| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
                let names: Vec<String> = known.iter().map(|(variable, _)| bare(variable)).collect();
                let hint = nearest(&bare(name), names.iter().map(String::as_str));
                let message = match hint.strip_prefix("did you mean ").filter(|_| !in_file) {
                    Some(near) => format!("no key has this variable; did you mean {PREFIX}{near}"),
                    None => "no key has this variable; pools and hosts are set in the file".to_owned(),
                };
                if tolerant {
                    self.warnings.push(FieldError { path: name.clone(), place, message });
                } else {
                    self.fault_at(name, place, message);
                }
            }
        }
    }

    /// Takes over what a text says of the scalar at `path`; of a list of scalars, separated by commas.
    pub(super) fn set(&mut self, slot: &mut dyn Slot, path: &str, text: &str, place: &Location) {
        leaves(slot.shape(), "", false, &mut |at, _, content| {
            let Content::Value(mut value) = content else { return };
            if at != path {
                return;
            }
            let domain = value.domain();
            let items: Vec<&str> = match domain.is_list {
                true => text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()).collect(),
                false => vec![text],
            };
            value.clear();
            for item in items.into_iter().filter(|item| !value.add(item)) {
                // A password may have commas.
                let found = quoted(if may_be_secret(text) { text } else { item });
                let message = format!("found {found}, expected {}", domain.expected(Some(item)));
                self.fault_at(path, place.clone(), message);
            }
            self.places.insert(path.to_owned(), place.clone());
        });
    }
}

/// The variable of a key: `TOLERARCH_CACHE__TAG_TTL` for `cache.tagTtl`.
fn variable(path: &str) -> String {
    let mut name = PREFIX.to_owned();
    for letter in path.chars() {
        match letter {
            '.' => name += "__",
            'A'..='Z' => name.extend(['_', letter]),
            _ => name.push(letter.to_ascii_uppercase()),
        }
    }
    name
}

/// Whether Kubernetes sets this variable for a Service whose name begins with tolerarch (`getServiceEnvVarMap`,
/// `makeLinkVariables` of pkg/kubelet/envvars): `…_SERVICE_HOST`, `…_SERVICE_PORT[_NAME]`, `…_PORT[_443_TCP[_ADDR]]`.
fn is_service_link(name: &str) -> bool {
    let rest = |mark: &str| name.find(mark).and_then(|at| name.get(at + mark.len()..));
    let of_service = name.ends_with("_SERVICE_HOST")
        || rest("_SERVICE_PORT").is_some_and(|r| r.is_empty() || r.starts_with('_'));
    let of_port = |rest: &str| {
        let mut parts = rest.split('_');
        let number = parts.next().is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        number
            && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
            && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
    };
    of_service || name.ends_with("_PORT") || rest("_PORT_").is_some_and(of_port)
}
