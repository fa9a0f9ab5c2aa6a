package embedtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// certificateAge is how long certificates are valid, before and after now: longer than any
// test, and than a test's clocks may differ.
const certificateAge = 24 * time.Hour

// WithTLS makes the members serve their clients over TLS, with certificates that are made for this cluster and kept
// in memory. The clients of this package are set up for it; for others there is [Cluster.TLSConfig]. Any client may
// connect, with a certificate or without. The members' connections with each other stay plain. The default is no TLS.
func WithTLS() Option {
	return optionFunc(func(s *settings) { s.tls = true })
}

// WithMutualTLS is [WithTLS], and the members refuse clients that show no certificate of the
// cluster's own authority, which those of this package do. The certificate's name is not
// taken for a user's.
func WithMutualTLS() Option {
	return optionFunc(func(s *settings) { s.tls, s.mutualTLS = true, true })
}

// TLSConfig returns what another client needs to connect: the authority to trust and,
// with [WithMutualTLS], a certificate to show. Each call returns another copy. It is nil
// if the cluster was started without TLS.
func (c *Cluster) TLSConfig() *tls.Config { return c.clientTLS.Clone() }

// makeTLS makes an authority, and a certificate for all members and one for all clients.
func (c *Cluster) makeTLS() error {
	if !c.settings.tls {
		return nil
	}
	authority, err := newAuthority()
	if err != nil {
		return fmt.Errorf("embedtest: certificates: %w", err)
	}
	// etcd's client asks for the name of the socket.
	server, err := authority.issue(x509.ExtKeyUsageServerAuth, "localhost", "*.sock")
	if err != nil {
		return fmt.Errorf("embedtest: certificates: %w", err)
	}
	c.serverTLS = &tls.Config{Certificates: []tls.Certificate{server}, MinVersion: tls.VersionTLS12}
	c.clientTLS = &tls.Config{RootCAs: authority.pool(), MinVersion: tls.VersionTLS12}
	if !c.settings.mutualTLS {
		return nil
	}
	client, err := authority.issue(x509.ExtKeyUsageClientAuth, "client")
	if err != nil {
		return fmt.Errorf("embedtest: certificates: %w", err)
	}
	c.serverTLS.ClientAuth, c.serverTLS.ClientCAs = tls.RequireAndVerifyClientCert, authority.pool()
	c.clientTLS.Certificates = []tls.Certificate{client}
	return nil
}

// authority signs the certificates of one cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "embedtest"},
		NotBefore:             time.Now().Add(-certificateAge),
		NotAfter:              time.Now().Add(certificateAge),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{certificate: certificate, key: key}, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue makes a certificate for the names, the first of which is also its subject.
func (a *authority) issue(usage x509.ExtKeyUsage, names ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: names[0]},
		DNSNames:     names,
		NotBefore:    a.certificate.NotBefore,
		NotAfter:     a.certificate.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
