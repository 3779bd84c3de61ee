// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Bounds of the service.
const (
	// maxBody is the size of a request: a request for a certificate, and as many nodes as there may
	// be.
	maxBody     = 256 << 10
	maxBodies   = 64 << 20
	maxInFlight = 200
	// requestTime is how long a request may take to arrive, and its answer to be read.
	requestTime = 30 * time.Second
	stopGrace   = 5 * time.Second
	// failedJoins are how many joins of an address may fail in a minute, refusals how many requests
	// with a key, renewals how many may be made with a key, and hostRenewals with all of a host.
	failedJoins  = 10
	refusals     = 10
	renewals     = 30
	hostRenewals = 300
	// comparisons are how many requests with a key are compared in a minute, see compareAgents.
	comparisons = 10
)

// Config configures a Service. Store, Authority and Names are required.
type Config struct {
	Store     apidb.Store
	Authority *pki.Authority
	// Names are the names and addresses by which hosts reach the service.
	Names []string
	// Lifetime is how long certificates are valid; 24 h when zero. RenewalGrace is how long after
	// that they can be renewed.
	Lifetime, RenewalGrace time.Duration
	// Placement is where the hosts find Placement.
	Placement PlacementPlace
	// Denied are hosts that are refused beside those that are evicted; nil: none.
	Denied *pki.DenyFile
	// Audit receives who joined and renewed. Store has to be one that notes its changes. None when
	// nil.
	Audit *auditlog.Log
	// Tracing makes spans of requests of hosts; nil is off.
	Tracing *tracing.Tracing
	// Connections bounds the connections of all servers of the process.
	Connections *osapi.Connections
	// Observer receives every answer and refusal; nil costs nothing.
	Observer Observer
	// Now is the clock; time.Now when nil.
	Now    func() time.Time
	Logger zerolog.Logger
}

// Observer receives the answers of a service, and the codes of those that are refusals.
type Observer interface {
	osapi.Observer
	EnrolmentRefused(route, code string)
}

// Service is the enrolment service: an http.Handler. Serve serves it on a listener.
type Service struct {
	config      Config
	service     *osapi.Service
	routes      *osapi.Routes[call]
	certificate *serverCertificate
	failures    *limiter // of joins, by network
	refusals    *limiter // by network, host and key
	renewals    *limiter // by network, host and key
	comparisons *limiter // by network, host and key

	hostRenewals *limiter // by host
	logs         *osapi.LogLimiter
	published    *publishedList
}

// New makes a Service. It does not close the store.
func New(c Config) (*Service, error) {
	if c.Store == nil || c.Authority == nil {
		return nil, errors.New("an enrolment service needs the API database and a CA")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Lifetime <= 0 {
		c.Lifetime = 24 * time.Hour
	}
	certificate, err := newServerCertificate(c.Authority, c.Names, c.Now)
	if err != nil {
		return nil, err
	}
	s := &Service{
		config: c, certificate: certificate, logs: osapi.NewLogLimiter(time.Minute, c.Now),
		failures: newLimiter(failedJoins, c.Now), renewals: newLimiter(renewals, c.Now),
		refusals: newLimiter(refusals, c.Now), hostRenewals: newLimiter(hostRenewals, c.Now),
		comparisons: newLimiter(comparisons, c.Now),
		published:   &publishedList{store: c.Store, file: c.Denied, now: c.Now},
	}
	options := osapi.Options{
		Limits:     osapi.Limits{Body: maxBody, Bodies: maxBodies, InFlight: maxInFlight},
		LogMessage: "Request to the enrolment service.", Now: c.Now, Tracing: c.Tracing, Logger: c.Logger,
	}
	if c.Observer != nil {
		options.Observer = c.Observer
	}
	s.service = osapi.NewService(options)
	s.routes = osapi.NewRoutes[call](true)
	for _, one := range calls() {
		s.routes.Add(one.method, one.path, one)
	}
	return s, nil
}

// Serve answers requests on the listener until the context ends. It closes the listener in any
// case.
func (s *Service) Serve(ctx context.Context, l net.Listener) error {
	server := &osapi.Server{
		Handler: s, TLS: s.TLS(), Connections: s.config.Connections, Refuse: s.refuse, Logger: s.config.Logger,
		ReadTimeout: requestTime, WriteTimeout: 2 * requestTime, Grace: stopGrace, Finish: true,
	}
	return server.Serve(ctx, l)
}

// TLS returns the configuration of the service's TLS. It asks for a certificate of clients, and
// does not verify it: the service does, because an expired one can be renewed.
func (s *Service) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.get() },
	}
}

// call is one call of the service.
type call struct {
	method, path string
	// do answers: a value to be written as JSON, or text.
	do func(x *exchange) (any, error)
}

func calls() []call {
	return []call{
		{http.MethodPost, "/v1/join", (*exchange).join},
		{http.MethodPost, "/v1/renew", (*exchange).renew},
		{http.MethodPost, "/v1/confirm", (*exchange).confirm},
		{http.MethodGet, pki.DeniedPath, (*exchange).denied},
		{http.MethodGet, "/v1/ca", (*exchange).ca},
	}
}

// Call is one call of the service.
type Call struct{ Method, Path string }

// Calls are all calls of the service.
func Calls() (all []Call) {
	for _, one := range calls() {
		all = append(all, Call{one.method, one.path})
	}
	return all
}

// text is an answer that is no JSON.
type text struct {
	kind string
	body []byte
}

// exchange is one request and its answer.
type exchange struct {
	osapi.Exchange
	*Service
}

// ServeHTTP answers a request.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{Service: s}
	s.service.Serve(w, r, &x.Exchange, x)
}

// refuse answers a request that ServeHTTP does not get, with a status and the reason.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	x := &exchange{Service: s}
	s.service.Refuse(w, r, status, reason, &x.Exchange, x)
}

// Handle finds the call, and makes it.
func (x *exchange) Handle() error {
	found := x.routes.Find(x.R)
	if found.Err != nil {
		return found.Err
	}
	x.Route, x.Routine = found.Path, found.Route.method == http.MethodGet
	if err := x.audit(found.Route.method); err != nil {
		return err
	}
	answer, err := found.Route.do(x)
	if err != nil {
		return err
	}
	plain, is := answer.(text)
	if !is {
		return x.SendJSON(answer)
	}
	x.W.Header().Set("Cache-Control", "no-store")
	x.W.Header().Set("Content-Type", plain.kind)
	x.Send(http.StatusOK, plain.body)
	return nil
}

// audit has the changes of a request recorded before it is answered.
func (x *exchange) audit(method string) error {
	log := x.config.Audit
	if log == nil || !auditlog.Mutating(method) {
		return nil
	}
	if err := log.Refusal(); err != nil {
		return osapi.Unavailable("The audit log cannot be written to, so that changes are refused.").Because(err)
	}
	record := auditlog.Request(&x.Exchange)
	if _, id, err := x.client(x.config.Now()); err == nil {
		record.Host = id.Name
	}
	ctx, trail := log.Begin(x.R.Context(), record)
	x.R = x.R.WithContext(ctx)
	x.OnAnswer = func(int) { trail.Write(ctx) }
	return nil
}

// Explain finds the answer that an error gets, and has it counted.
func (x *exchange) Explain(err error) *osapi.Error {
	e := explained(err)
	if x.config.Observer != nil {
		x.config.Observer.EnrolmentRefused(x.Route, e.Code)
	}
	return e
}

func explained(err error) *osapi.Error {
	var (
		e       *osapi.Error
		refused *Refusal
		large   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &refused):
		return refused.answer()
	case errors.As(err, &e):
		if e.Code == "" {
			e.Code = string(codeOf(e.Status))
		}
		return e
	case errors.As(err, &large):
		return refusal(http.StatusRequestEntityTooLarge, CodeTooLarge, "The body has more than %d bytes.", large.Limit).
			answer()
	case errors.Is(err, osapi.ErrBug):
		return refusal(http.StatusInternalServerError,
			CodeInternal, "Internal error of the enrolment service; see its log.").answer()
	}
	retry := refusal(http.StatusServiceUnavailable,
		CodeUnavailable, "The request cannot be answered now. Send it again in a moment.").answer()
	retry.Retry = true
	return retry.Because(err) // the log line of the request has it
}

// codeOf is the code of an error that is of no call.
func codeOf(status int) Code {
	switch status {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return CodeNotFound
	case http.StatusRequestTimeout:
		return CodeTimeout
	case http.StatusServiceUnavailable:
		return CodeUnavailable
	}
	return CodeBadRequest
}

// refusal is an error that the client gets as it is.
func refusal(status int, code Code, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func (r *Refusal) answer() *osapi.Error {
	retry := r.Code == CodeTooMany || r.Code == CodeUnavailable
	return &osapi.Error{Status: r.Status, Code: string(r.Code), Message: r.Message, Retry: retry}
}

// Encode writes an error as JSON.
func (x *exchange) Encode(e *osapi.Error) (contentType string, body []byte) {
	return x.EncodeJSON(Refusal{Code: Code(e.Code), Message: e.Message})
}

// decode reads the body of a request: one JSON value with no field that is not known.
func decode[T any](x *exchange) (value T, err error) {
	if kind, _, err := mime.ParseMediaType(x.R.Header.Get("Content-Type")); err != nil || kind != osapi.MediaJSON {
		return value, badRequest("The body must be of the type %s.", osapi.MediaJSON)
	}
	body, err := x.Body()
	if err != nil {
		return value, err
	}
	if err := jsonkit.Unmarshal(body, &value); err != nil {
		return value, badRequest("The body cannot be read: %.200s.", err.Error())
	}
	return value, nil
}

func badRequest(format string, args ...any) *Refusal {
	return refusal(http.StatusBadRequest, CodeBadRequest, format, args...)
}

// denied answers GET /v1/denied: the deny list, for servers. It is public, as the list of revoked
// certificates of a CA is: servers have no certificate to show here. It has no reasons.
func (x *exchange) denied() (any, error) {
	body, err := x.published.get(x.R.Context())
	if err != nil {
		return nil, err
	}
	return text{"text/plain; charset=utf-8", body}, nil
}

// Denied is the deny list of the API database and of another list, which may be nil, as it is
// published: why a host is refused is for operators, and not in it. Of two denials of a host the
// later one counts. It is an error while the other list is not known: servers that copy this one
// would let its hosts in.
func Denied(ctx context.Context, store apidb.Store, others *pki.DenyList) (*pki.DenyList, error) {
	if err := others.Err(); err != nil {
		return nil, err
	}
	all, err := store.Enrolments(ctx)
	if err != nil {
		return nil, err
	}
	var denials []pki.Denial
	if others != nil {
		denials = others.Denials()
	}
	for _, e := range all {
		if d, denied := e.Denial(); denied {
			denials = append(denials, d)
		}
	}
	for i := range denials {
		denials[i].Reason = ""
	}
	return pki.NewDenyList(denials)
}

// ca answers GET /v1/ca: the certificate of the CA. Who does not trust it yet compares its
// fingerprint.
func (x *exchange) ca() (any, error) {
	return text{"application/x-pem-file", x.config.Authority.PEM()}, nil
}
