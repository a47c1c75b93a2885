//! The keys of the configuration: each section names its own once, in the order of the documentation.

use std::collections::BTreeMap;

use clap::ValueEnum;
use saphyr::{MarkedYaml, YamlData};

use super::reader::{Reader, Slot, is_null, scalar};
use super::{Admin, Config, Log, Registries, Server};
use crate::image::ImageRef;
use crate::logging::{Format, Level};
use crate::policy::Mode;
use crate::registry::{Guard, HostSettings, normal};
use crate::resolver::{CacheSettings, LookupSettings};

impl Slot for Config {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("mode", &mut self.policy.mode),
                ("server", &mut self.server),
                ("admin", &mut self.admin),
                ("pools", &mut self.policy.pools),
                ("lookup", &mut self.lookup),
                ("cache", &mut self.cache),
                ("registries", &mut self.registries),
                ("network", &mut self.network),
                ("log", &mut self.log),
            ],
        );
    }
}

impl Slot for Server {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("listen", &mut self.listen),
                ("certFile", &mut self.files.certificate),
                ("keyFile", &mut self.files.key),
                ("drain", &mut self.drain),
                ("maxConnections", &mut self.max_connections),
            ],
        );
    }
}

impl Slot for Admin {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("listen", &mut self.listen)]);
    }
}

impl Slot for LookupSettings {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("budget", &mut self.budget),
                ("timeout", &mut self.timeout),
                ("concurrency", &mut self.concurrency),
                ("perRegistry", &mut self.per_registry),
            ],
        );
    }
}

impl Slot for CacheSettings {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let mut negative = Negative(self.clone());
        reader.section(
            node,
            &mut [
                ("capacity", &mut self.capacity),
                ("tagTtl", &mut self.tag),
                ("staleWhileRevalidate", &mut self.stale_while_revalidate),
                ("staleIfError", &mut self.stale_if_error),
                ("negative", &mut negative),
            ],
        );
        let Self { capacity, tag, stale_while_revalidate, stale_if_error, .. } = *self;
        *self = Self { capacity, tag, stale_while_revalidate, stale_if_error, ..negative.0 };
    }
}

/// The lifetimes of failures: a section of its own in the file.
struct Negative(CacheSettings);

impl Slot for Negative {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("notFound", &mut self.0.not_found),
                ("denied", &mut self.0.denied),
                ("throttled", &mut self.0.throttled),
                ("timeout", &mut self.0.timeout),
                ("unreachable", &mut self.0.unreachable),
                ("badManifest", &mut self.0.bad_manifest),
            ],
        );
    }
}

impl Slot for Registries {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("hosts", &mut self.hosts)]);
    }
}

impl Slot for BTreeMap<String, HostSettings> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let YamlData::Mapping(members) = &node.data else {
            return reader.wrong(node, "a section with a key for each host");
        };
        for (key, value) in members {
            let host = scalar(key).unwrap_or_default();
            let step = format!("[{host:?}]");
            // A host is well-formed if it can stand in front of an image.
            if format!("{host}/x")
                .parse::<ImageRef>()
                .is_ok_and(|image| image.host().eq_ignore_ascii_case(&host))
            {
                let mut settings = HostSettings::default();
                if !is_null(value) {
                    reader.within(&step, |reader| settings.fill(value, reader));
                }
                if self.insert(normal(&host), settings).is_some() {
                    reader.within(&step, |reader| reader.fault(key, "this host is there already"));
                }
            } else {
                reader.within(&step, |reader| {
                    reader.fault(key, "no registry host; write host or host:port");
                });
            }
        }
    }
}

impl Slot for HostSettings {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("caFile", &mut self.ca_file), ("plainHttp", &mut self.plain_http)]);
    }
}

impl Slot for Guard {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("allow", &mut self.allow), ("deny", &mut self.deny)]);
    }
}

impl Slot for Log {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("level", &mut self.level), ("format", &mut self.format)]);
    }
}

impl Slot for Mode {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self, "enforce or observe", |text| match text {
            "enforce" => Some(Self::Enforce),
            "observe" => Some(Self::Observe),
            _ => None,
        });
    }
}

impl Slot for Level {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let parse = |text: &str| <Self as ValueEnum>::from_str(text, false).ok();
        reader.parsed(node, self, "error, warn, info, debug or trace", parse);
    }
}

impl Slot for Format {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self, "json or text", |text| <Self as ValueEnum>::from_str(text, false).ok());
    }
}
