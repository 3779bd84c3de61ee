// SPDX-License-Identifier: Apache-2.0

package compute

// The policies of servers. servers:create:cell_down is of the specification of cells that are down;
// no release of Nova has it.
var (
	ruleServersIndex         = Rule{"os_compute_api:servers:index", readers}
	ruleServersIndexAll      = Rule{"os_compute_api:servers:index:get_all_tenants", admins}
	ruleServersDetail        = Rule{"os_compute_api:servers:detail", readers}
	ruleServersDetailAll     = Rule{"os_compute_api:servers:detail:get_all_tenants", admins}
	ruleServersAllFilters    = Rule{"os_compute_api:servers:allow_all_filters", admins}
	ruleServersShow          = Rule{"os_compute_api:servers:show", readers}
	ruleShowExtraSpecs       = Rule{"os_compute_api:servers:show:flavor-extra-specs", readers}
	ruleShowHostStatus       = Rule{"os_compute_api:servers:show:host_status", admins}
	ruleShowHostUnknown      = Rule{"os_compute_api:servers:show:host_status:unknown-only", admins}
	ruleExtendedAttrs        = Rule{"os_compute_api:os-extended-server-attributes", admins}
	ruleServersCreate        = Rule{"os_compute_api:servers:create", members}
	ruleCreateForcedHost     = Rule{"os_compute_api:servers:create:forced_host", admins}
	ruleCreateZeroDisk       = Rule{"os_compute_api:servers:create:zero_disk_flavor", admins}
	ruleCreateCellDown       = Rule{"os_compute_api:servers:create:cell_down", "rule:admin_api"}
	ruleServersDelete        = Rule{"os_compute_api:servers:delete", members}
	ruleRestore              = Rule{"os_compute_api:os-deferred-delete:restore", members}
	ruleForceDelete          = Rule{"os_compute_api:os-deferred-delete:force", members}
	ruleServersUpdate        = Rule{"os_compute_api:servers:update", members}
	ruleServersStart         = Rule{"os_compute_api:servers:start", members}
	ruleServersStop          = Rule{"os_compute_api:servers:stop", members}
	ruleServersReboot        = Rule{"os_compute_api:servers:reboot", members}
	ruleServersRebuild       = Rule{"os_compute_api:servers:rebuild", members}
	ruleServersConfirm       = Rule{"os_compute_api:servers:confirm_resize", members}
	ruleServersRevert        = Rule{"os_compute_api:servers:revert_resize", members}
	ruleEvacuate             = Rule{"os_compute_api:os-evacuate", admins}
	ruleMigrate              = Rule{"os_compute_api:os-migrate-server:migrate", managers}
	ruleMigrateToHost        = Rule{"os_compute_api:os-migrate-server:migrate:host", admins}
	ruleServerMigrationsList = Rule{"os_compute_api:servers:migrations:index", managers}
	ruleServerMigrationsShow = Rule{"os_compute_api:servers:migrations:show", admins}
	ruleServerMigrationAbort = Rule{"os_compute_api:servers:migrations:delete", admins}
	ruleResetState           = Rule{"os_compute_api:os-admin-actions:reset_state", admins}
	ruleConsoleOutput        = Rule{"os_compute_api:os-console-output", members}
	ruleRemoteConsoles       = Rule{"os_compute_api:os-remote-consoles", members}
	ruleMetadataIndex        = Rule{"os_compute_api:server-metadata:index", readers}
	ruleMetadataShow         = Rule{"os_compute_api:server-metadata:show", readers}
	ruleMetadataCreate       = Rule{"os_compute_api:server-metadata:create", members}
	ruleMetadataUpdateAll    = Rule{"os_compute_api:server-metadata:update_all", members}
	ruleMetadataUpdate       = Rule{"os_compute_api:server-metadata:update", members}
	ruleMetadataDelete       = Rule{"os_compute_api:server-metadata:delete", members}
	ruleActionsList          = Rule{"os_compute_api:os-instance-actions:list", readers}
	ruleActionsShow          = Rule{"os_compute_api:os-instance-actions:show", readers}
	ruleActionsEvents        = Rule{"os_compute_api:os-instance-actions:events", admins}
	ruleTagsIndex            = Rule{"os_compute_api:os-server-tags:index", readers}
	ruleTagsShow             = Rule{"os_compute_api:os-server-tags:show", readers}
	ruleTagsUpdateAll        = Rule{"os_compute_api:os-server-tags:update_all", members}
	ruleTagsUpdate           = Rule{"os_compute_api:os-server-tags:update", members}
	ruleTagsDeleteAll        = Rule{"os_compute_api:os-server-tags:delete_all", members}
	ruleTagsDelete           = Rule{"os_compute_api:os-server-tags:delete", members}
)
