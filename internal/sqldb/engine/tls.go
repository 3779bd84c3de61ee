// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/compute-agent/compute-agent/internal/files"
)

// verification is what of a server's certificate is checked.
type verification int

const (
	verifyNothing verification = iota
	verifyChain                // that a known authority has signed it
	verifyHost                 // and that it is for the host
)

// tlsOptions are the TLS options of a MySQL address, under the names that the several MySQL drivers
// of Python have for them.
type tlsOptions struct {
	d             *dsn
	ca, cert, key string
	enabledBy     []string // the options that ask for TLS
	disabledBy    string   // the option that turns it off
	verify        verification
}

// mysqlTLS takes the options of a connection by TLS. Any of them turns it on, with the server's
// certificate verified unless an option says otherwise; those that contradict each other are
// refused.
func (d *dsn) mysqlTLS(cfg *mysql.Config) error {
	o := &tlsOptions{d: d, verify: verifyHost, ca: d.option("ssl_ca"), cert: d.option("ssl_cert"),
		key: d.option("ssl_key")}
	for name, value := range map[string]string{"ssl_ca": o.ca, "ssl_cert": o.cert, "ssl_key": o.key} {
		if value != "" {
			o.enabledBy = append(o.enabledBy, name)
		}
	}
	for name, instead := range map[string]string{"ssl_capath": "name a file with ssl_ca", "ssl_cipher": "leave it out",
		"ssl": "name a file with ssl_ca, or write tls=true"} {
		if d.option(name) != "" {
			return fmt.Errorf("the database address %s has the option %s, which is not supported; %s", d, name, instead)
		}
	}
	if err := errors.Join(o.mode(), o.switches()); err != nil {
		return err
	}
	slices.Sort(o.enabledBy)
	switch {
	case o.disabledBy != "" && len(o.enabledBy) > 0:
		return fmt.Errorf("the database address %s has %s, and %s; leave one out",
			d, o.disabledBy, strings.Join(o.enabledBy, ", "))
	case o.ca != "" && o.verify == verifyNothing:
		return fmt.Errorf(
			"the database address %s has an ssl_ca, and says that the server's certificate is not verified; "+
				"leave one out", d)
	case (o.cert == "") != (o.key == ""):
		return fmt.Errorf("the database address %s has one of ssl_cert and ssl_key; it takes both", d)
	case len(o.enabledBy) == 0:
		return nil
	}
	config, err := o.config()
	cfg.TLS = config
	return err
}

// mode takes the options that are a word: tls of the Go driver, ssl_mode of MySQL's own clients.
func (o *tlsOptions) mode() error {
	switch value := o.d.option("tls"); value {
	case "":
	case "true":
		o.enabledBy = append(o.enabledBy, "tls")
	case "skip-verify":
		o.enabledBy, o.verify = append(o.enabledBy, "tls"), verifyNothing
	case "false":
		o.disabledBy = "tls=false"
	default:
		return fmt.Errorf("the database address %s has tls=%s; it has to be true, false or skip-verify", o.d, value)
	}
	value := o.d.option("ssl_mode")
	switch strings.ToUpper(value) {
	case "":
		return nil
	case "DISABLED":
		o.disabledBy = "ssl_mode=" + value
		return nil
	case "REQUIRED":
		if o.verify = min(o.verify, verifyChain); o.ca == "" {
			o.verify = verifyNothing
		}
	case "VERIFY_CA":
		o.verify = min(o.verify, verifyChain)
	case "VERIFY_IDENTITY":
	default:
		return fmt.Errorf(
			"the database address %s has ssl_mode=%s; it has to be DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY",
			o.d, value)
	}
	o.enabledBy = append(o.enabledBy, "ssl_mode")
	return nil
}

// switches takes the options that are yes or no: those of PyMySQL and of SQLAlchemy.
func (o *tlsOptions) switches() error {
	off, _, err := o.d.boolean("ssl_disabled")
	if off {
		o.disabledBy = "ssl_disabled"
	}
	for _, option := range []struct {
		name  string
		least verification // what is still verified when it is off
	}{{"ssl_verify_cert", verifyNothing}, {"ssl_verify_identity", verifyChain}, {"ssl_check_hostname", verifyChain}} {
		on, given, bad := o.d.boolean(option.name)
		if err = errors.Join(err, bad); given {
			o.enabledBy = append(o.enabledBy, option.name)
		}
		if given && !on {
			o.verify = min(o.verify, option.least)
		}
	}
	return err
}

// config makes of the options what Go's TLS needs.
func (o *tlsOptions) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: o.verify != verifyHost}
	if o.ca != "" {
		text, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, fmt.Errorf("read the ssl_ca of the database address %s: %w", o.d, files.Denied(err))
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the ssl_ca %s of the database address %s has no certificate", o.ca, o.d)
		}
	}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("read the ssl_cert and ssl_key of the database address %s: %w",
				o.d, files.Denied(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if o.verify == verifyChain {
		roots := config.RootCAs
		config.VerifyConnection = func(s tls.ConnectionState) error {
			others := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				others.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others})
			return err
		}
	}
	return config, nil
}

// unreachable is what to do about a server to which no connection can be made, or that does not
// answer.
func unreachable(err error) string {
	var name *net.DNSError
	switch {
	case untrusted(err):
		return "the certificate of the database server is not accepted; check ssl_ca or sslrootcert, and that the " +
			"certificate is for the host in the address"
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return "TLS is asked for, and the database server has none; set it up there, or change sslmode"
	case errors.As(err, &name) && name.IsNotFound:
		return "no host has the name in its address"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at its address; check host and port, and whether the database server runs"
	}
	return "the database server does not answer"
}

// untrusted says that the certificate of a server was not accepted.
func untrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &certificate) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid)
}
