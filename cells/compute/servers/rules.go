// SPDX-License-Identifier: Apache-2.0

package servers

import "github.com/compute-agent/compute-agent/cells/compute/api"

// The policies of servers. servers:create:cell_down is of the specification of cells that are down;
// no release of Nova has it.
var (
	ruleServersShow          = api.Rule{Name: "os_compute_api:servers:show", Default: api.Readers}
	ruleServersCreate        = api.Rule{Name: "os_compute_api:servers:create", Default: api.Members}
	ruleCreateForcedHost     = api.Rule{Name: "os_compute_api:servers:create:forced_host", Default: api.Admins}
	ruleCreateZeroDisk       = api.Rule{Name: "os_compute_api:servers:create:zero_disk_flavor", Default: api.Admins}
	ruleCreateCellDown       = api.Rule{Name: "os_compute_api:servers:create:cell_down", Default: "rule:admin_api"}
	ruleServersDelete        = api.Rule{Name: "os_compute_api:servers:delete", Default: api.Members}
	ruleRestore              = api.Rule{Name: "os_compute_api:os-deferred-delete:restore", Default: api.Members}
	ruleForceDelete          = api.Rule{Name: "os_compute_api:os-deferred-delete:force", Default: api.Members}
	ruleServersUpdate        = api.Rule{Name: "os_compute_api:servers:update", Default: api.Members}
	ruleServersStart         = api.Rule{Name: "os_compute_api:servers:start", Default: api.Members}
	ruleServersStop          = api.Rule{Name: "os_compute_api:servers:stop", Default: api.Members}
	ruleServersReboot        = api.Rule{Name: "os_compute_api:servers:reboot", Default: api.Members}
	ruleServersRebuild       = api.Rule{Name: "os_compute_api:servers:rebuild", Default: api.Members}
	ruleServersConfirm       = api.Rule{Name: "os_compute_api:servers:confirm_resize", Default: api.Members}
	ruleServersRevert        = api.Rule{Name: "os_compute_api:servers:revert_resize", Default: api.Members}
	ruleEvacuate             = api.Rule{Name: "os_compute_api:os-evacuate", Default: api.Admins}
	ruleMigrate              = api.Rule{Name: "os_compute_api:os-migrate-server:migrate", Default: api.Managers}
	ruleMigrateToHost        = api.Rule{Name: "os_compute_api:os-migrate-server:migrate:host", Default: api.Admins}
	ruleServerMigrationsList = api.Rule{Name: "os_compute_api:servers:migrations:index", Default: api.Managers}
	ruleServerMigrationsShow = api.Rule{Name: "os_compute_api:servers:migrations:show", Default: api.Admins}
	ruleServerMigrationAbort = api.Rule{Name: "os_compute_api:servers:migrations:delete", Default: api.Admins}
	ruleResetState           = api.Rule{Name: "os_compute_api:os-admin-actions:reset_state", Default: api.Admins}
	ruleMetadataIndex        = api.Rule{Name: "os_compute_api:server-metadata:index", Default: api.Readers}
	ruleMetadataShow         = api.Rule{Name: "os_compute_api:server-metadata:show", Default: api.Readers}
	ruleMetadataCreate       = api.Rule{Name: "os_compute_api:server-metadata:create", Default: api.Members}
	ruleMetadataUpdateAll    = api.Rule{Name: "os_compute_api:server-metadata:update_all", Default: api.Members}
	ruleMetadataUpdate       = api.Rule{Name: "os_compute_api:server-metadata:update", Default: api.Members}
	ruleMetadataDelete       = api.Rule{Name: "os_compute_api:server-metadata:delete", Default: api.Members}
	ruleConsoleOutput        = api.Rule{Name: "os_compute_api:os-console-output", Default: api.Members}
	ruleRemoteConsoles       = api.Rule{Name: "os_compute_api:os-remote-consoles", Default: api.Members}
	ruleActionsList          = api.Rule{Name: "os_compute_api:os-instance-actions:list", Default: api.Readers}
	ruleActionsShow          = api.Rule{Name: "os_compute_api:os-instance-actions:show", Default: api.Readers}
	ruleActionsEvents        = api.Rule{Name: "os_compute_api:os-instance-actions:events", Default: api.Admins}
	ruleTagsIndex            = api.Rule{Name: "os_compute_api:os-server-tags:index", Default: api.Readers}
	ruleTagsShow             = api.Rule{Name: "os_compute_api:os-server-tags:show", Default: api.Readers}
	ruleTagsUpdateAll        = api.Rule{Name: "os_compute_api:os-server-tags:update_all", Default: api.Members}
	ruleTagsUpdate           = api.Rule{Name: "os_compute_api:os-server-tags:update", Default: api.Members}
	ruleTagsDeleteAll        = api.Rule{Name: "os_compute_api:os-server-tags:delete_all", Default: api.Members}
	ruleTagsDelete           = api.Rule{Name: "os_compute_api:os-server-tags:delete", Default: api.Members}
)
