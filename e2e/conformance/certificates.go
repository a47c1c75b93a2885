package main

import (
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"math/rand/v2"
	"time"
)

// Chain is the certificate chain of a server, with whether Go accepts it.
type Chain struct {
	// In DER: the server's certificate first, the trusted authority last.
	Certificates [][]byte `json:"certificates"`
	// Whether Go accepts it for a.b, at the time now.
	Taken bool `json:"taken"`
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A link is one certificate: its extensions, its name, and whether it may sign certificates.
type link struct {
	name       string
	extensions []pkix.Extension
	isCA       bool
	pathLength int
}

// chain signs each link by the next one, and the last link by an authority. The first link is the server's certificate.
func chain(links ...link) Chain {
	links = append(links, link{name: "root", isCA: true, pathLength: -1})
	key := func(place int) ed25519.PrivateKey {
		return ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("a seed of thirty-two bytes, no %2d", place))[:ed25519.SeedSize])
	}
	var result Chain
	var parsed []*x509.Certificate
	for place, own := range links {
		issuer := min(place+1, len(links)-1)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(place + 1)), Subject: pkix.Name{CommonName: own.name},
			NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(1, 0, 0),
			BasicConstraintsValid: true, IsCA: own.isCA, MaxPathLen: own.pathLength, MaxPathLenZero: own.isCA && own.pathLength == 0,
			ExtraExtensions: own.extensions,
		}
		if place == 0 {
			template.DNSNames = []string{"a.b"}
		}
		parent := &x509.Certificate{Subject: pkix.Name{CommonName: links[issuer].name}}
		public := key(place).Public()
		der, err := x509.CreateCertificate(cryptorand.Reader, template, parent, public, key(issuer))
		must(err)
		result.Certificates = append(result.Certificates, der)
		// Like `crypto/tls`, which refuses a chain if it cannot parse a part of it.
		if certificate, err := x509.ParseCertificate(der); err == nil {
			parsed = append(parsed, certificate)
		}
	}
	if len(parsed) < len(links) {
		return result
	}
	options := x509.VerifyOptions{DNSName: "a.b", CurrentTime: now, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	options.Roots.AddCert(parsed[len(parsed)-1])
	for _, certificate := range parsed[1 : len(parsed)-1] {
		options.Intermediates.AddCert(certificate)
	}
	_, err := parsed[0].Verify(options)
	result.Taken = err == nil
	return result
}

func marshalled(value any) []byte {
	der, err := asn1.Marshal(value)
	must(err)
	return der
}

type oids = []asn1.ObjectIdentifier

func extension(id asn1.ObjectIdentifier, critical bool, value []byte) pkix.Extension {
	return pkix.Extension{Id: id, Critical: critical, Value: value}
}

var (
	anyPolicy = asn1.ObjectIdentifier{2, 5, 29, 32, 0}
	policyOne = asn1.ObjectIdentifier{1, 2, 3, 1}
	policyTwo = asn1.ObjectIdentifier{1, 2, 3, 2}
	serverUse = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
	clientUse = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 2}
	anyUse    = asn1.ObjectIdentifier{2, 5, 29, 37, 0}
)

func policies(critical bool, of ...asn1.ObjectIdentifier) pkix.Extension {
	type information struct{ ID asn1.ObjectIdentifier }
	var all []information
	for _, id := range of {
		all = append(all, information{id})
	}
	return extension(asn1.ObjectIdentifier{2, 5, 29, 32}, critical, marshalled(all))
}

func mappings(critical bool, pairs ...asn1.ObjectIdentifier) pkix.Extension {
	type mapping struct{ From, To asn1.ObjectIdentifier }
	var all []mapping
	for place := 0; place < len(pairs); place += 2 {
		all = append(all, mapping{pairs[place], pairs[place+1]})
	}
	return extension(asn1.ObjectIdentifier{2, 5, 29, 33}, critical, marshalled(all))
}

// constraints returns requireExplicitPolicy and inhibitPolicyMapping, each absent if negative.
func constraints(critical bool, explicit, mapping int) pkix.Extension {
	value := []byte{0x30, 0}
	for tag, skipped := range []int{explicit, mapping} {
		if skipped >= 0 {
			value = append(value, byte(0x80+tag), 1, byte(skipped))
		}
	}
	value[1] = byte(len(value) - 2)
	return extension(asn1.ObjectIdentifier{2, 5, 29, 36}, critical, value)
}

func inhibitAny(critical bool, skipped int) pkix.Extension {
	return extension(asn1.ObjectIdentifier{2, 5, 29, 54}, critical, marshalled(skipped))
}

func usages(critical bool, of ...asn1.ObjectIdentifier) pkix.Extension {
	return extension(asn1.ObjectIdentifier{2, 5, 29, 37}, critical, marshalled(oids(of)))
}

func certificates(r *rand.Rand, random int) []Chain {
	server := func(extensions ...pkix.Extension) link {
		return link{name: "server", extensions: extensions, pathLength: -1}
	}
	issuer := func(extensions ...pkix.Extension) link {
		return link{name: "issuer", extensions: extensions, isCA: true, pathLength: -1}
	}
	cases := []Chain{chain(server()), chain(server(), issuer())}
	for _, critical := range []bool{true, false} {
		for _, one := range []pkix.Extension{
			policies(critical, anyPolicy), policies(critical, policyOne), policies(critical, anyPolicy, policyTwo),
			mappings(critical, policyOne, policyTwo), constraints(critical, 0, -1), constraints(critical, 1, -1), constraints(critical, 2, -1), constraints(critical, 3, 0),
			constraints(critical, -1, 0), inhibitAny(critical, 0), inhibitAny(critical, 1),
			usages(critical, anyUse), usages(critical, serverUse), usages(critical, clientUse), usages(critical, clientUse, anyUse), usages(critical, policyOne),
			extension(asn1.ObjectIdentifier{2, 5, 29, 99}, critical, []byte{5, 0}), extension(asn1.ObjectIdentifier{1, 2, 3, 4}, critical, []byte{5, 0}),
			extension(asn1.ObjectIdentifier{1, 2, 29, 32}, critical, []byte{5, 0}),
		} {
			cases = append(cases, chain(server(one)), chain(server(), issuer(one)), chain(server(one), issuer(one)))
		}
	}
	cases = append(cases, chain(server(), link{name: "issuer", pathLength: -1}), chain(server(), issuer(), link{name: "second", isCA: true}))
	for range random {
		critical := func() bool { return chance(r, 60) }
		some := func() []pkix.Extension {
			var all []pkix.Extension
			policy := func() asn1.ObjectIdentifier { return one(r, policyOne, policyTwo) }
			add := func(percent int, extension func() pkix.Extension) {
				if chance(r, percent) {
					all = append(all, extension())
				}
			}
			add(85, func() pkix.Extension {
				sets := []oids{{anyPolicy}, {anyPolicy}, {policyOne}, {policyTwo}, {policyOne, policyTwo}, {anyPolicy, policyOne}}
				return policies(critical(), one(r, sets...)...)
			})
			add(30, func() pkix.Extension { return mappings(critical(), policy(), policy()) })
			add(50, func() pkix.Extension { return constraints(critical(), r.IntN(4)-1, r.IntN(3)-1) })
			add(25, func() pkix.Extension { return inhibitAny(critical(), r.IntN(3)) })
			add(10, func() pkix.Extension { return usages(critical(), one(r, serverUse, anyUse, clientUse)) })
			return all
		}
		links := []link{server(some()...)}
		for place := range r.IntN(4) {
			name := fmt.Sprintf("issuer %d", place)
			if chance(r, 20) {
				// A self-issued certificate, as for a change of keys.
				name = one(r, "root", links[len(links)-1].name)
			}
			if name == "server" {
				name = "root"
			}
			links = append(links, link{name: name, extensions: some(), isCA: true, pathLength: -1})
		}
		cases = append(cases, chain(links...))
	}
	return cases
}
