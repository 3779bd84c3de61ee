// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Route is one call of the API.
type Route struct {
	Method string
	// Path is as the client sends it, with {name} for a segment that the handler gets by that name,
	// and OtherPath for all paths that begin with no version.
	Path string
	// Handle answers, with one of the exchange's methods, or returns an error to be refused with.
	// A route with actions has none.
	Handle func(*Exchange) error
	// Actions are the actions that a body can ask for, by the name of the body's only member.
	Actions map[string]Action

	// Since and Until bound the microversions that have the call; 0 is no bound. Without it the
	// path is not found.
	Since, Until Version
	// Open calls are for everybody, known or not.
	Open bool
	// Body is what the body has to be, and Query are the parameters. Both are checked before the
	// handler gets them.
	Body  SchemaSteps
	Query *Parameters
	// Rule has to allow the call in the project of the caller, after these checks. Without one the
	// handler asks: it knows what the call is about.
	Rule Rule
	// Rules are the policy rules that the handler evaluates itself.
	Rules []Rule

	// Unversioned calls do not read a microversion and do not show one.
	Unversioned bool
}

// NewRoutes makes what finds a route; a 405 lists methods in the order of the alphabet.
func NewRoutes(all []Route) *osapi.Routes[Route] {
	found := osapi.NewRoutes[Route](true)
	for _, r := range slices.SortedStableFunc(slices.Values(all),
		func(a, b Route) int { return cmp.Compare(a.Method, b.Method) }) {
		path := r.Path
		if strings.HasSuffix(path, "/") {
			path += "{$}"
		}
		found.Add(r.Method, path, r)
	}
	return found
}

// The beginnings of paths.
const (
	// Prefix is what the paths of the API begin with.
	Prefix = "/v2.1/"
	// OtherPath stands for all paths that begin with no version.
	OtherPath = "/*"
)

// find finds the route of a path, which is split as Nova does it: after what is quoted in it was
// undone.
func (x *Exchange) find(path string) osapi.Found[Route] {
	if first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); first != "" && "/"+first+"/" != Prefix {
		path = OtherPath
	}
	x.path = &http.Request{Method: x.R.Method, URL: &url.URL{Path: path}}
	return x.Service.Routes.Find(x.path)
}

// belowProject finds the project that stands after the version in the path, as clients send it that
// know the API before 2.18 only: one of hexadecimal digits and dashes, as Nova has it, or the
// caller's own whatever its form. It returns the path without the project.
func belowProject(path, own string) (project, without string, is bool) {
	rest, is := strings.CutPrefix(path, Prefix)
	project, rest, more := strings.Cut(rest, "/")
	if !is || !more || project == "" || project != own && strings.Trim(project, "0123456789abcdef-") != "" {
		return "", path, false
	}
	return project, Prefix + rest, true
}

// Resolve finds the route of the request. The order of the checks is Nova's: who, route,
// microversion, project of the path.
func (x *Exchange) Resolve() error {
	found := x.find(x.R.URL.Path)
	if found.Route == nil || !found.Route.Open {
		if err := x.identify(); err != nil {
			return err
		}
	}
	if found.Route == nil {
		// The project in a path is one by its form, or because it is the caller's own.
		if project, path, is := belowProject(x.R.URL.Path, x.Caller.Project); is {
			x.pathProject, found = project, x.find(path)
		}
	}
	if found.Err != nil {
		return unknownPath(x.R.URL.Path, found.Err)
	}
	route := found.Route
	x.route = route
	x.Route, x.Routine = route.Path, x.Routine || route.Open
	if !route.Unversioned {
		if err := x.negotiate(); err != nil {
			return err
		}
	}
	switch {
	case x.pathProject != "" && x.pathProject != x.Caller.Project:
		return osapi.BadRequest("Malformed request URL: URL's project_id '%s' doesn't match Context's project_id '%s'",
			x.pathProject, x.Caller.Project)
	case route.Since > 0 && !x.AtLeast(route.Since), route.Until > 0 && x.Version > route.Until:
		return osapi.NoRoute()
	}
	return nil
}

// Reading says whether the method changes nothing.
func (x *Exchange) Reading() bool {
	return x.R.Method == http.MethodGet || x.R.Method == http.MethodHead
}

// Answer answers the request with what its route has for it. The order of the checks is Nova's:
// body, parameters, policy.
func (x *Exchange) Answer() (err error) {
	r := x.route
	if r.Actions != nil {
		return x.runAction()
	}
	if r.Body != nil {
		if x.Asked, err = x.checkedBody(); err != nil {
			return err
		}
	}
	if r.Query != nil {
		if x.Params, err = r.Query.read(x); err != nil {
			return err
		}
	}
	if err := x.allowRule(r.Rule); err != nil {
		return err
	}
	return r.Handle(x)
}

// novaOnly are the parts of paths that Nova has, or had, and this service has not: resources, and
// what is below a server, a flavor or an aggregate.
var novaOnly = []string{
	"consoles", "diagnostics", "extensions", "images", "ips", "os-agents", "os-assisted-volume-snapshots",
	"os-baremetal-nodes", "os-cells", "os-certificates",
	"os-cloudpipe", "os-console-auth-tokens", "os-consoles", "os-fixed-ips", "os-flavor-access", "os-floating-ip-dns",
	"os-floating-ip-pools", "os-floating-ips",
	"os-floating-ips-bulk", "os-fping", "os-hosts", "os-instance_usage_audit_log", "os-interface",
	"os-networks", "os-quota-class-sets",
	"os-security-group-default-rules", "os-security-group-rules", "os-security-groups",
	"os-server-external-events", "os-server-password",
	"os-simple-tenant-usage", "os-snapshots", "os-tenant-networks", "os-virtual-interfaces", "os-volume_attachments",
	"os-volumes", "os-volumes_boot",
	"shares", "topology",
}

// unknownPath is the error for an unknown path. It names what a client of Nova may have meant.
func unknownPath(path string, err *osapi.Error) error {
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case err.Status != http.StatusNotFound || !slices.Contains(novaOnly, part):
		case part == "os-hosts":
			return osapi.NotFound(
				"This service has no os-hosts: `openstack compute service list` and `openstack hypervisor list` " +
					"show the hosts.")
		default:
			return osapi.NotFound("This service does not support %s; docs/cells.md lists the calls that it has.", part)
		}
	}
	return err
}

// Action is one of those that a POST to …/action asks for.
type Action struct {
	// Schemas are the schemas of its argument; without one it is not checked.
	Schemas SchemaSteps
	// Rule has to allow the action in the project of the caller. Without one Do asks.
	Rule Rule
	// Rules are the policy rules that Do evaluates itself.
	Rules []Rule
	// Do does it and answers. The argument is that of the body, nil if it is no object.
	Do func(x *Exchange, argument *jsonkit.Object) error
	// Until is the last microversion that has the action, and instead what replaces it then; 0 is
	// no bound.
	Until   Version
	Instead string
}

// argument is the schema of its argument at a microversion.
func (a *Action) argument(v Version) jsonkit.Schema {
	if a.Schemas == nil {
		return nil
	}
	return a.Schemas.At(v)
}

// runAction does what the body asks for: it is an object whose only member names one of the
// actions, and is the argument.
func (x *Exchange) runAction() error {
	value, err := x.Decoded()
	if err != nil {
		return err
	}
	body, is := value.(*jsonkit.Object)
	if !is || len(body.Names()) != 1 {
		return osapi.BadRequest("Malformed request body")
	}
	name := body.Names()[0]
	action, known := x.route.Actions[name]
	switch {
	case !known && slices.Contains(novaActions, name):
		return osapi.BadRequest(
			"This service does not support the action %s; docs/cells.md lists the calls that it has", name)
	case !known:
		return osapi.BadRequest("There is no such action: %s", osapi.Shortened(name))
	}
	if err := jsonkit.Validate(jsonkit.ClosedObject(
		jsonkit.Properties{{Name: name, Schema: action.argument(x.Version)}}, name), value); err != nil {
		return osapi.BadRequest("%s", err)
	}
	x.Action = name
	if action.Until > 0 && x.Version > action.Until {
		return osapi.BadRequest("There is no such action in microversion %s; %s replaces it", x.Version, action.Instead)
	}
	if err := x.allowRule(action.Rule); err != nil {
		return err
	}
	return action.Do(x, MemberObject(body, name))
}

// novaActions are the actions on servers that Nova has, and this service has not.
var novaActions = []string{
	"addFixedIp", "addFloatingIp", "addSecurityGroup",
	"changePassword", "createBackup", "createImage", "injectNetworkInfo", "lock",
	"os-getRDPConsole", "os-getSPICEConsole", "os-getVNCConsole", "os-migrateLive", "pause", "removeFixedIp",
	"removeFloatingIp", "removeSecurityGroup", "rescue",
	"resetNetwork", "resize", "resume", "shelve", "shelveOffload", "suspend",
	"trigger_crash_dump", "unlock", "unpause", "unrescue", "unshelve",
}
