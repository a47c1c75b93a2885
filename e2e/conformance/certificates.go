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

// A Chain is the certificate chain of a server, with whether Go accepts it.
type Chain struct {
	// Certificates in DER. The first is the server's, and the last is the trusted authority.
	Certificates [][]byte `json:"certificates"`
	// Whether Go accepts the chain for the host a.b, at the time now.
	Taken bool `json:"taken"`
}

// now is the time at which the certificates are verified.
var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A link describes one certificate of a chain.
type link struct {
	name       string
	extensions []pkix.Extension
	isCA       bool
	pathLength int // none if negative
}

// chain signs each link by the next one, and the last link by an authority. The first link is the server's certificate.
func chain(links ...link) Chain {
	links = append(links, link{name: "root", isCA: true, pathLength: -1})
	var result Chain
	var parsed []*x509.Certificate
	for i, link := range links {
		issuer := min(i+1, len(links)-1)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: link.name},
			NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(1, 0, 0),
			BasicConstraintsValid: true, IsCA: link.isCA, MaxPathLen: link.pathLength, MaxPathLenZero: link.isCA && link.pathLength == 0,
			ExtraExtensions: link.extensions,
		}
		if i == 0 {
			template.DNSNames = []string{"a.b"}
		}
		parent := &x509.Certificate{Subject: pkix.Name{CommonName: links[issuer].name}}
		der, err := x509.CreateCertificate(cryptorand.Reader, template, parent, keyOf(i).Public(), keyOf(issuer))
		must(err)
		result.Certificates = append(result.Certificates, der)
		// crypto/tls refuses a chain if it cannot parse one of its certificates.
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

// keyOf returns the key of the certificate at this index of a chain. It is the same in each run.
func keyOf(index int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("a seed of thirty-two bytes, no %2d", index))[:ed25519.SeedSize])
}

func marshalled(value any) []byte {
	der, err := asn1.Marshal(value)
	must(err)
	return der
}

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

// policies returns the extension certificatePolicies.
func policies(critical bool, ids ...asn1.ObjectIdentifier) pkix.Extension {
	type information struct{ ID asn1.ObjectIdentifier }
	var all []information
	for _, id := range ids {
		all = append(all, information{id})
	}
	return extension(asn1.ObjectIdentifier{2, 5, 29, 32}, critical, marshalled(all))
}

// mappings returns the extension policyMappings. Each pair maps the first policy to the second.
func mappings(critical bool, pairs ...asn1.ObjectIdentifier) pkix.Extension {
	type mapping struct{ From, To asn1.ObjectIdentifier }
	var all []mapping
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, mapping{pairs[i], pairs[i+1]})
	}
	return extension(asn1.ObjectIdentifier{2, 5, 29, 33}, critical, marshalled(all))
}

// constraints returns the extension policyConstraints with requireExplicitPolicy and inhibitPolicyMapping. A negative value is left out.
func constraints(critical bool, explicit, mapping int) pkix.Extension {
	value := []byte{0x30, 0}
	for tag, skipCerts := range []int{explicit, mapping} {
		if skipCerts >= 0 {
			value = append(value, byte(0x80+tag), 1, byte(skipCerts))
		}
	}
	value[1] = byte(len(value) - 2)
	return extension(asn1.ObjectIdentifier{2, 5, 29, 36}, critical, value)
}

// inhibitAny returns the extension inhibitAnyPolicy.
func inhibitAny(critical bool, skipCerts int) pkix.Extension {
	return extension(asn1.ObjectIdentifier{2, 5, 29, 54}, critical, marshalled(skipCerts))
}

// usages returns the extension extKeyUsage.
func usages(critical bool, ids ...asn1.ObjectIdentifier) pkix.Extension {
	return extension(asn1.ObjectIdentifier{2, 5, 29, 37}, critical, marshalled(ids))
}

// serverWith returns a server's certificate with these extensions.
func serverWith(extensions ...pkix.Extension) link {
	return link{name: "server", extensions: extensions, pathLength: -1}
}

// issuerWith returns the certificate of an intermediate authority with these extensions.
func issuerWith(extensions ...pkix.Extension) link {
	return link{name: "issuer", extensions: extensions, isCA: true, pathLength: -1}
}

func certificates(r *rand.Rand, random int) []Chain {
	cases := []Chain{chain(serverWith()), chain(serverWith(), issuerWith())}
	for _, critical := range []bool{true, false} {
		for _, tested := range []pkix.Extension{
			policies(critical, anyPolicy), policies(critical, policyOne), policies(critical, anyPolicy, policyTwo),
			mappings(critical, policyOne, policyTwo), constraints(critical, 0, -1), constraints(critical, 1, -1), constraints(critical, 2, -1), constraints(critical, 3, 0),
			constraints(critical, -1, 0), inhibitAny(critical, 0), inhibitAny(critical, 1),
			usages(critical, anyUse), usages(critical, serverUse), usages(critical, clientUse), usages(critical, clientUse, anyUse), usages(critical, policyOne),
			extension(asn1.ObjectIdentifier{2, 5, 29, 99}, critical, []byte{5, 0}), extension(asn1.ObjectIdentifier{1, 2, 3, 4}, critical, []byte{5, 0}),
			extension(asn1.ObjectIdentifier{1, 2, 29, 32}, critical, []byte{5, 0}),
		} {
			cases = append(cases, chain(serverWith(tested)), chain(serverWith(), issuerWith(tested)), chain(serverWith(tested), issuerWith(tested)))
		}
	}
	cases = append(cases,
		chain(serverWith(), link{name: "issuer", pathLength: -1}),
		chain(serverWith(), issuerWith(), link{name: "second", isCA: true}),
	)
	for range random {
		cases = append(cases, randomChain(r))
	}
	return cases
}

func randomChain(r *rand.Rand) Chain {
	links := []link{serverWith(randomExtensions(r)...)}
	for number := range r.IntN(4) {
		name := fmt.Sprintf("issuer %d", number)
		if chance(r, 20) {
			// A self-issued certificate, as an authority makes it to change its key.
			name = pick(r, "root", links[len(links)-1].name)
		}
		if name == "server" {
			name = "root"
		}
		links = append(links, link{name: name, extensions: randomExtensions(r), isCA: true, pathLength: -1})
	}
	return chain(links...)
}

func randomExtensions(r *rand.Rand) []pkix.Extension {
	var all []pkix.Extension
	critical := func() bool { return chance(r, 60) }
	policy := func() asn1.ObjectIdentifier { return pick(r, policyOne, policyTwo) }
	add := func(percent int, extension func() pkix.Extension) {
		if chance(r, percent) {
			all = append(all, extension())
		}
	}
	add(85, func() pkix.Extension {
		sets := [][]asn1.ObjectIdentifier{{anyPolicy}, {anyPolicy}, {policyOne}, {policyTwo}, {policyOne, policyTwo}, {anyPolicy, policyOne}}
		return policies(critical(), pick(r, sets...)...)
	})
	add(30, func() pkix.Extension { return mappings(critical(), policy(), policy()) })
	add(50, func() pkix.Extension { return constraints(critical(), r.IntN(4)-1, r.IntN(3)-1) })
	add(25, func() pkix.Extension { return inhibitAny(critical(), r.IntN(3)) })
	add(10, func() pkix.Extension { return usages(critical(), pick(r, serverUse, anyUse, clientUse)) })
	return all
}
