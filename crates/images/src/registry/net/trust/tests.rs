use super::*;

/// Counts the authorities of a file. Checks that a file without any is an error, and then returns 0.
fn count(text: &str) -> usize {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let mut roots = RootCertStore::empty();
    let added = match add(&mut roots, file.path()) {
        Err(TlsFault::Authorities(_, what))
            if what.starts_with("holds no certificate authority") =>
        {
            0
        }
        added => added.unwrap().len(),
    };
    assert_eq!(roots.len(), added);
    added
}

#[test]
fn malformed_parts_of_a_ca_file_are_skipped() {
    let good = testregistry::Pki::new().ca_pem();
    let (first, rest) = good.split_once('\n').unwrap();
    let half = good.split_at(good.len() / 2).0;
    let key = testregistry::Pki::new().ca_key_pem();
    let no_der = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    for bad in [
        "\u{feff}no PEM\n",
        &key,
        no_der,
        "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        &format!("{first}\nheader: of it\n\n{rest}"),
        &good.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        &format!("{half}\n"),
        "-----BEGIN CERTIFICATE\n",
        "-----END CERTIFICATE-----\n",
    ] {
        assert_eq!(count(&format!("{bad}{good}{bad}{good}{bad}")), 2, "{bad}");
        assert_eq!(count(bad), 0, "{bad}");
    }
    let with_crlf = good.replace('\n', "\r\n");
    assert_eq!(count(&format!("comment\r\n{with_crlf}")), 1);
    assert_eq!(count(good.trim_end()), 1);
    assert_eq!(count(""), 0);
}

#[test]
fn parts_of_a_pem_file_have_their_line() {
    let text = b"of whom\n-----BEGIN A-----\n\nx\r\n-----BEGIN B-----";
    let expected = [
        (2, b"-----BEGIN A-----\n\nx\r\n".to_vec()),
        (5, b"-----BEGIN B-----".to_vec()),
    ];
    assert_eq!(parts(text), expected);
    assert_eq!(parts(b""), []);
}

#[test]
fn extra_authorities_exclude_those_of_the_system() {
    let [public, company] = [(); 2].map(|()| testregistry::Pki::new().ca_pem());
    let system = tempfile::tempdir().unwrap();
    let extra = tempfile::tempdir().unwrap();
    std::fs::write(system.path().join("public.pem"), &public).unwrap();
    std::fs::write(extra.path().join("bundle.pem"), public + &company).unwrap();
    let company = CertificateDer::from_pem_slice(company.as_bytes()).unwrap();
    let none: [CertificateDer<'_>; 0] = [];
    for (directory, expected) in [
        (extra.path(), &[company][..]),
        (system.path(), &none),
        (&extra.path().join("nonesuch"), &none),
    ] {
        assert_eq!(added(system.path(), directory), expected, "{directory:?}");
    }
}

#[test]
fn chart_mounts_extra_authorities_where_they_are_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let templates = root.join("../../manifests/helm/tolerarch/templates");
    for name in ["deployment.yaml", "controller.yaml"] {
        let template = std::fs::read_to_string(templates.join(name)).unwrap();
        for expected in [
            format!("value: {SYSTEM_DIRECTORY}:{EXTRA_DIRECTORY}\n"),
            format!("- name: ca\n              mountPath: {EXTRA_DIRECTORY}\n"),
        ] {
            assert!(template.contains(&expected), "{name}: {expected}");
        }
    }
}
