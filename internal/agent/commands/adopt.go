// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// AdoptOptions are an operator's decisions about this host's identity.
type AdoptOptions struct {
	// Node is the name of the compute node; "": that of the host.
	Node string
	// UUID is the UUID of the resource provider to take over; "": the host's own.
	UUID string
	// Rename gives the provider, and those below it that are named after it, the name of the node.
	Rename bool
	// AsNew allows nodes to be created again in a Placement that does not have them.
	AsNew bool
	// GiveBack restores the tree to its state before this agent adopted it.
	GiveBack bool
	// WithServers is how many servers and other consumers an operator knows to be on the host,
	// where that has a cell; [identity.UnknownServers] where that cannot be found out.
	WithServers string
	// Confirm asks whether to carry out the plan; nil: a dry run.
	Confirm func(control.Adoption) (bool, error)
}

// CheckWithServers validates the value of --with-servers.
func CheckWithServers(given string) error {
	if n, err := strconv.Atoi(given); given == "" || given == identity.UnknownServers || err == nil && n >= 0 {
		return nil
	}
	return fmt.Errorf("--with-servers %q: must be a number, or %s", given, identity.UnknownServers)
}

// Check validates what flags say, and their combination. It writes UUID as Placement does.
func (o *AdoptOptions) Check() error {
	if err := CheckWithServers(o.WithServers); err != nil {
		return err
	}
	switch {
	case o.GiveBack && (o.UUID != "" || o.Rename || o.AsNew):
		return errors.New("--give-back cannot be combined with --uuid, --rename or --as-new")
	case o.AsNew && (o.UUID != "" || o.Rename):
		return errors.New("--as-new cannot be combined with --uuid or --rename")
	case !o.GiveBack && !o.AsNew && o.UUID == "" && !o.Rename:
		return errors.New("give --uuid UUID, --rename, --as-new or --give-back; see compute-agent adopt --help")
	}
	if o.Node != "" {
		if err := providertree.ValidateProviderName(o.Node); err != nil {
			return fmt.Errorf("--node: %w", err)
		}
	}
	if o.UUID == "" {
		return nil
	}
	canonical, err := providertree.CanonicalUUID(o.UUID)
	if err != nil {
		return fmt.Errorf("--uuid: %w", err)
	}
	o.UUID = canonical
	return nil
}

// Adopt reconciles this host's identity with its resource providers in Placement, without a running
// agent, or gives an adopted provider back. If it is not certain who owns a provider, it changes
// nothing and returns an [*identity.Error] inside a [*resourcetracker.FatalError]. It can be
// repeated, also after a crash.
func Adopt(ctx context.Context, cfg *config.Config, log zerolog.Logger, opts AdoptOptions) (control.Adoption, error) {
	unlock, err := lockState(cfg.Agent.StateDir)
	if err != nil {
		return control.Adoption{}, err
	}
	defer unlock()
	state := statedir.New(cfg.Agent.StateDir)
	client, err := access.NewReportClient(cfg, state.Journal, nil, nil, log)
	if err != nil {
		return control.Adoption{}, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	defer client.CloseIdle()
	ad := &adopter{
		cfg: cfg, log: log, placement: client, records: state.Records, machine: statedir.Machine(log),
		opts: opts, every: opts.Node == "", beside: filepath.Dir(cfg.File()),
	}
	if ad.every {
		ad.opts.Node = cfg.Agent.Host
	}
	out, err := ad.run(ctx)
	var refused *identity.Error
	if errors.As(err, &refused) {
		err = &resourcetracker.FatalError{Node: ad.opts.Node, Err: err, Protects: true}
	}
	return out, err
}

// adopter is one adoption.
type adopter struct {
	cfg       *config.Config
	log       zerolog.Logger
	placement *reportclient.Client
	records   *ownership.Store
	machine   string // the hash of the machine's id, or ""
	opts      AdoptOptions
	every     bool   // no node was named
	beside    string // the directory of the configuration

	state   *identity.State
	own     string // the host's identity as it is, "" if it has none or it cannot be read
	tree    *providertree.Tree
	root    string
	renames []identity.Rename // top first
	from    string            // the former name, for a renaming
	names   []string          // of nodes to create again
	plan    control.Adoption
	giving  *giveBack // for a node that is given back
	// consumers hold something of the tree.
	consumers map[string]bool
}

func (ad *adopter) run(ctx context.Context) (control.Adoption, error) {
	if err := ad.makePlan(ctx); err != nil {
		return ad.plan, err
	}
	if len(ad.plan.Steps) == 0 {
		ad.plan.Done = true
		return ad.plan, nil
	}
	if err := ad.countServers(ctx); err != nil || ad.opts.Confirm == nil {
		return ad.plan, err
	}
	if ok, err := ad.opts.Confirm(ad.plan); err != nil || !ok {
		return ad.plan, err
	}
	if err := ad.apply(ctx); err != nil {
		return ad.plan, err
	}
	ad.plan.Done = true
	return ad.plan, nil
}

// countServers puts into the plan which servers the cell has on this host, under the name that it
// has now or that it had. It refuses to change whose the host is without their number.
func (ad *adopter) countServers(ctx context.Context) error {
	if ad.cfg.CellClient.URL == "" {
		return nil
	}
	former := ""
	if ad.state != nil {
		r, _ := ad.state.Record()
		former = r.Host
	}
	found := access.ServersOf(ctx, ad.cfg.CellClient, ad.log, ad.cfg.Agent.Host, former)
	inPlacement := ad.opts.Rename && len(ad.renames) == 0 // it has the new name
	if inPlacement && found.Own {                         // and the credentials are new
		found.Unknown = ""
	}
	renamed := inPlacement && found.Unknown == "" && found.Present && !found.Former
	for uuid := range found.Items {
		ad.plan.Servers = append(ad.plan.Servers, uuid)
	}
	slices.Sort(ad.plan.Servers)
	servers, others := found.Count(ad.consumers)
	n, given := strconv.Itoa(servers+others), ad.opts.WithServers
	switch {
	case renamed: // in the cell and in Placement: the number was given there
		return nil
	case found.Unknown != "" && given == identity.UnknownServers, found.Unknown == "" &&
		(given == n || given == "" && n == "0"):
		return nil
	case ad.opts.Confirm == nil:
		if ad.plan.ServersUnknown, ad.plan.WithServers = found.Unknown, n; found.Unknown != "" {
			ad.plan.WithServers = identity.UnknownServers
		}
		return nil
	case found.Unknown != "":
		return &identity.Error{
			Problem: fmt.Sprintf(
				"it is not known which servers the cell has on this host: %s; consumers of its resource providers: %d",
				found.Unknown, servers+others),
			Hint: "run the command again when the cell answers; to go on without knowing, add --with-servers " +
				identity.UnknownServers,
		}
	}
	problem := fmt.Sprintf("servers that the cell has on this host: %d", servers)
	if servers > 0 {
		problem += ", " + found.Names()
	}
	problem += fmt.Sprintf("; other consumers of its resource providers: %d", others)
	hint := "if that is as it should be, add --with-servers " + n
	if ad.opts.Rename && servers > 0 {
		hint = fmt.Sprintf(
			"the cell knows them by the name %s, and an agent of another name gets none of them: rename the host "+
				"with them, on the machine of "+
				"the compute API: compute-agent cells manage rename-host %[1]s %[3]s; or give the host that name "+
				"back; to rename the resource providers all "+
				"the same, add --with-servers %[2]s", cmp.Or(former, "that the host had"), n, ad.cfg.Agent.Host)
	}
	return &identity.Error{Problem: problem, Hint: hint}
}

// makePlan makes the plan. It writes nothing.
func (ad *adopter) makePlan(ctx context.Context) (err error) {
	if ad.opts.GiveBack {
		return ad.planGiveBack(ctx)
	}
	dir := ad.cfg.Agent.StateDir
	ad.plan = control.Adoption{Node: ad.opts.Node, Providers: []control.AdoptedProvider{}, Steps: []string{}}
	if ad.state, err = identity.Open(dir); err != nil {
		return err
	}
	ad.own, err = resourcetracker.FindIdentity(dir, ad.beside)
	if err != nil && ad.opts.UUID == "" {
		return &identity.Error{Problem: err.Error(), Hint: "give the right uuid: --uuid UUID"}
	}
	ad.plan.Before = ad.own
	if ad.opts.AsNew {
		return ad.planAsNew(ctx)
	}
	ad.root = ad.opts.UUID
	if ad.root == "" {
		ad.root = ad.own
	}
	if ad.root == "" {
		return &identity.Error{
			Problem: "this host has no identity yet: there is no compute_id in " + dir,
			Hint:    "give the uuid of this host's resource provider: --uuid UUID",
		}
	}
	ad.plan.UUID = ad.root
	ad.tree, err = ad.placement.TreeOf(ctx, ad.root)
	if errors.Is(err, reportclient.ErrNotFound) {
		return ad.planMissing(ctx)
	}
	if err != nil {
		return err
	}
	if err := ad.checkRoot(ctx); err != nil {
		return err
	}
	if err := ad.planRenames(ctx); err != nil {
		return err
	}
	if err := ad.addCurrent(ctx); err != nil {
		return err
	}
	ad.planSteps()
	return nil
}

// planMissing handles a provider that Placement does not have. It is valid if this host has never
// reported anything and only gets its identity back.
func (ad *adopter) planMissing(ctx context.Context) error {
	other, found, err := ad.placement.FindNamesake(ctx, ad.opts.Node)
	if err != nil {
		return err
	}
	if found {
		return &identity.Error{
			Problem: fmt.Sprintf("Placement has no resource provider %s; the one named %q is %s",
				ad.root, ad.opts.Node, other),
			Hint: fmt.Sprintf("if that is this host's: `compute-agent adopt --node %s --uuid %s`", ad.opts.Node, other),
		}
	}
	if r, ok := ad.state.Record(); ok && r.UUID == ad.root && len(r.Nodes) == 0 && !ad.opts.Rename {
		ad.planSteps()
		return nil
	}
	return &identity.Error{
		Problem: fmt.Sprintf("Placement has neither a resource provider %s nor one named %q", ad.root, ad.opts.Node),
		Hint: "check [placement_client] url and region; to create this host there again, `compute-agent adopt " +
			"--as-new`; if its resource provider has " +
			"another name, add --uuid UUID --rename",
	}
}

// checkRoot checks that only this provider can be this host's compute node.
func (ad *adopter) checkRoot(ctx context.Context) error {
	root, _ := ad.tree.Provider(ad.root)
	what := fmt.Sprintf("resource provider %s (%s)", root.Name, root.UUID)
	const another = "look for the root provider of this host: openstack resource provider list --in-tree "
	switch {
	case root.ParentUUID != "":
		return &identity.Error{Problem: what + " is a child of " + root.ParentUUID + ", but a compute node is a root",
			Hint: another + root.UUID}
	case root.HasTrait(providertree.TraitSharesViaAggregate):
		return &identity.Error{Problem: what + " is a sharing provider (" + providertree.TraitSharesViaAggregate +
			"), not a compute node", Hint: another + "UUID"}
	case !plausible(root):
		return &identity.Error{
			Problem: what +
				" has neither the trait COMPUTE_NODE nor the inventory of a compute node (VCPU, PCPU, MEMORY_MB or " +
				"a custom class)",
			Hint: another + "UUID; if it is right, set the trait COMPUTE_NODE on it first",
		}
	}
	named, found, err := ad.placement.FindNamesake(ctx, ad.opts.Node)
	if err != nil {
		return err
	}
	if found && named != ad.root {
		return &identity.Error{
			Problem: fmt.Sprintf("two resource providers claim to be this host: %s, and one named %q with uuid %s",
				what, ad.opts.Node, named),
			Hint: fmt.Sprintf(
				"keep the one that has the guests' allocations and delete the other (openstack resource provider "+
					"show --allocations UUID; "+
					"openstack resource provider delete UUID); or adopt the other: --uuid %s", named),
		}
	}
	if root.Name != ad.opts.Node && !ad.opts.Rename {
		return &identity.Error{
			Problem: fmt.Sprintf("%s has another name than this node, %q", what, ad.opts.Node),
			Hint: fmt.Sprintf("if the host was renamed, add --rename; if this node is %s, add --node %s",
				root.Name, root.Name),
		}
	}
	return ad.checkFormer(ctx)
}

// checkFormer checks that the provider of the host's current identity does not exist.
func (ad *adopter) checkFormer(ctx context.Context) error {
	if ad.own == "" || ad.own == ad.root || ad.hasOwnUUID() {
		return nil
	}
	former, err := ad.placement.TreeOf(ctx, ad.own)
	if errors.Is(err, reportclient.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	p, _ := former.Provider(ad.own)
	return &identity.Error{
		Problem: fmt.Sprintf(
			"two resource providers claim to be this host: %s, and %s (%s), which is its current identity", ad.root,
			p.Name, p.UUID),
		Hint: fmt.Sprintf(
			"keep the one that has the guests' allocations: delete %s (openstack resource provider delete %s) and "+
				"run this again, or, to keep it, "+
				"`compute-agent adopt --rename --uuid %s` after deleting the other", p.Name, p.UUID, p.UUID),
	}
}

// hasOwnUUID reports whether the provider is a node whose uuid its driver sets, so that compute_id
// is not its identity.
func (ad *adopter) hasOwnUUID() bool {
	r, _ := ad.state.Record()
	_, reported := r.Nodes[ad.root]
	return reported && ad.own != "" && ad.root != ad.own && r.UUID == ad.own
}

func plausible(root providertree.Provider) bool {
	if root.HasTrait(resourcetracker.TraitComputeNode) || len(root.Inventories) == 0 {
		return true
	}
	for class := range root.Inventories {
		if slices.Contains([]string{"VCPU", "PCPU", "MEMORY_MB"}, class) || providertree.IsCustom(class) {
			return true
		}
	}
	return false
}

// planRenames lists the providers that get another name: the root, and those below it that are
// named after it.
func (ad *adopter) planRenames(ctx context.Context) error {
	if !ad.opts.Rename {
		return nil
	}
	root, _ := ad.tree.Provider(ad.root)
	ad.from = root.Name
	r, _ := ad.state.Record()
	if was := r.Nodes[ad.root].Name; was != "" && root.Name == ad.opts.Node {
		ad.from = was // renamed where the compute API is: the records of the agent are to follow
	}
	if r.Renaming != nil {
		if r.Renaming.Root != ad.root || r.Renaming.To != ad.opts.Node {
			return &identity.Error{
				Problem: fmt.Sprintf("another rename, of %s to %s, is not finished", r.Renaming.From, r.Renaming.To),
				Hint: fmt.Sprintf("finish it first: `compute-agent adopt --rename --node %s --uuid %s`",
					r.Renaming.To, r.Renaming.Root),
			}
		}
		ad.from = r.Renaming.From
	}
	renames, err := identity.PlanRenames(ctx, ad.placement, ad.tree, ad.root, ad.from, ad.opts.Node)
	ad.renames = renames
	return err
}

// addCurrent puts into the plan what Placement has.
func (ad *adopter) addCurrent(ctx context.Context) error {
	ad.consumers = map[string]bool{}
	for _, uuid := range ad.tree.Subtree(ad.root) {
		p, _ := ad.tree.Provider(uuid)
		consumers, err := ad.placement.ConsumersOf(ctx, uuid)
		if err != nil {
			return err
		}
		for consumer := range consumers {
			ad.consumers[consumer] = true
		}
		view := control.AdoptedProvider{UUID: uuid, Name: p.Name, Parent: p.ParentUUID, Inventories: map[string]int64{},
			Traits: p.Traits, Consumers: len(consumers)}
		for class, inv := range p.Inventories {
			view.Inventories[class] = inv.Total
		}
		for _, r := range ad.renames {
			if r.Provider.UUID == uuid {
				view.NewName = r.Name
			}
		}
		ad.plan.Providers = append(ad.plan.Providers, view)
	}
	return nil
}

// planSteps adds the steps to the plan.
func (ad *adopter) planSteps() {
	step := func(format string, args ...any) { ad.plan.Steps = append(ad.plan.Steps, fmt.Sprintf(format, args...)) }
	if !ad.hasOwnUUID() && ad.own != ad.root {
		before := "it holds none that can be read"
		if ad.own != "" {
			before = "it was " + ad.own
		}
		step("make %s this host's identity (compute_id; %s, and a file that is replaced is kept beside it)",
			ad.root, before)
	}
	for _, r := range ad.renames {
		step("rename resource provider %s (%s) to %s", r.Provider.Name, r.Provider.UUID, r.Name)
	}
	if len(ad.renames) == 0 && ad.renamed() {
		step("note that this node was %s before: resource providers have their new names already", ad.from)
	}
	if len(ad.plan.Steps) > 0 || ad.selfDiffers() {
		step("note in %s that this host, %s, is the one that reports it",
			filepath.Join(ad.cfg.Agent.StateDir, identity.FileName), ad.cfg.Agent.Host)
	}
}

// renamed reports whether the node gets another name, here if no longer in Placement.
func (ad *adopter) renamed() bool { return ad.opts.Rename && ad.from != ad.opts.Node }

// selfDiffers reports whether the state file says something else of this host than what is found.
func (ad *adopter) selfDiffers() bool {
	r, ok := ad.state.Record()
	self := ad.resultingSelf()
	return ok && (r.UUID != self.UUID || r.Host != self.Host || r.Renaming != nil ||
		(self.Machine != "" && r.Machine != self.Machine))
}

// resultingSelf returns the identity of this host after the adoption.
func (ad *adopter) resultingSelf() identity.Self {
	id := ad.root
	if ad.hasOwnUUID() {
		id = ad.own
	}
	return identity.Self{UUID: id, Host: ad.cfg.Agent.Host, Machine: ad.machine}
}

// apply carries the plan out. Each step is whole or not done, and after a crash the same command
// goes on.
func (ad *adopter) apply(ctx context.Context) error {
	switch {
	case ad.opts.GiveBack:
		return ad.doGiveBack(ctx)
	case ad.opts.AsNew:
		return ad.allowAsNew()
	}
	self := ad.resultingSelf()
	if ad.renamed() {
		if err := ad.state.BeginRename(ad.root, ad.from, ad.opts.Node); err != nil {
			return err
		}
	}
	if !ad.hasOwnUUID() {
		if err := resourcetracker.ReplaceIdentity(ad.root, time.Now(), ad.cfg.Agent.StateDir, ad.beside); err != nil {
			return err
		}
	}
	if err := identity.RenameProviders(ctx, ad.placement, ad.renames); err != nil {
		return err
	}
	if ad.opts.Rename {
		if err := renameRecord(ad.records, ad.root, ad.from, ad.opts.Node); err != nil {
			return err
		}
		off, err := statedir.OpenDisabled(ad.cfg.Agent.StateDir)
		if err == nil {
			err = off.RenameNode(ad.from, ad.opts.Node)
		}
		if err != nil {
			return err
		}
		return ad.state.EndRename(self)
	}
	return ad.state.SetIdentity(self)
}

// renameRecord has the record of what is this agent's follow the names.
func renameRecord(records *ownership.Store, root, from, to string) error {
	record, err := records.Load(root)
	if err != nil || record == nil {
		return err
	}
	record.Node = to
	for uuid, p := range record.Providers {
		if rest, after := strings.CutPrefix(p.Name, from+"_"); after {
			p.Name = to + "_" + rest
		}
		if uuid == root {
			p.Name = to
		}
		record.Providers[uuid] = p
	}
	adopted, err := records.LoadAdopted(root)
	if err == nil && adopted != nil {
		adopted.Rename(from, to)
		err = records.SaveAdopted(adopted)
	}
	if err != nil {
		return err
	}
	return records.Save(record)
}
