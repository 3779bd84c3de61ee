-- The tables of OpenStack Placement, as its own migrations leave them (alembic 422ece571366),
-- so that a database can go from one to the other and back.

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE resource_classes (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    name VARCHAR(255) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT uniq_resource_classes0name UNIQUE (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE traits (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    name VARCHAR(255) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT uniq_traits0name UNIQUE (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE placement_aggregates (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    uuid VARCHAR(36),
    PRIMARY KEY (id),
    CONSTRAINT uniq_placement_aggregates0uuid UNIQUE (uuid),
    KEY ix_placement_aggregates_uuid (uuid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE projects (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    external_id VARCHAR(255) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT uniq_projects0external_id UNIQUE (external_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE users (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    external_id VARCHAR(255) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT uniq_users0external_id UNIQUE (external_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE consumer_types (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    name VARCHAR(255) NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT uniq_consumer_types0name UNIQUE (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE resource_providers (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    uuid VARCHAR(36) NOT NULL,
    name VARCHAR(200),
    generation INTEGER,
    root_provider_id INTEGER,
    parent_provider_id INTEGER,
    PRIMARY KEY (id),
    FOREIGN KEY(parent_provider_id) REFERENCES resource_providers (id),
    FOREIGN KEY(root_provider_id) REFERENCES resource_providers (id),
    CONSTRAINT uniq_resource_providers0name UNIQUE (name),
    CONSTRAINT uniq_resource_providers0uuid UNIQUE (uuid),
    KEY resource_providers_name_idx (name),
    KEY resource_providers_parent_provider_id_idx (parent_provider_id),
    KEY resource_providers_root_provider_id_idx (root_provider_id),
    KEY resource_providers_uuid_idx (uuid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE inventories (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    resource_provider_id INTEGER NOT NULL,
    resource_class_id INTEGER NOT NULL,
    total INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    min_unit INTEGER NOT NULL,
    max_unit INTEGER NOT NULL,
    step_size INTEGER NOT NULL,
    allocation_ratio DOUBLE NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT uniq_inventories0resource_provider_resource_class UNIQUE (resource_provider_id, resource_class_id),
    KEY inventories_resource_class_id_idx (resource_class_id),
    KEY inventories_resource_provider_id_idx (resource_provider_id),
    KEY inventories_resource_provider_resource_class_idx (resource_provider_id, resource_class_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE resource_provider_traits (
    created_at DATETIME,
    updated_at DATETIME,
    trait_id INTEGER NOT NULL,
    resource_provider_id INTEGER NOT NULL,
    PRIMARY KEY (trait_id, resource_provider_id),
    FOREIGN KEY(resource_provider_id) REFERENCES resource_providers (id),
    FOREIGN KEY(trait_id) REFERENCES traits (id),
    KEY resource_provider_traits_resource_provider_trait_idx (resource_provider_id, trait_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE resource_provider_aggregates (
    created_at DATETIME,
    updated_at DATETIME,
    resource_provider_id INTEGER NOT NULL,
    aggregate_id INTEGER NOT NULL,
    PRIMARY KEY (resource_provider_id, aggregate_id),
    KEY resource_provider_aggregates_aggregate_id_idx (aggregate_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE consumers (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    uuid VARCHAR(36) NOT NULL,
    project_id INTEGER NOT NULL,
    user_id INTEGER NOT NULL,
    generation INTEGER DEFAULT 0 NOT NULL,
    consumer_type_id INTEGER,
    PRIMARY KEY (id),
    CONSTRAINT uniq_consumers0uuid UNIQUE (uuid),
    CONSTRAINT consumers_consumer_type_id_fkey FOREIGN KEY(consumer_type_id) REFERENCES consumer_types (id),
    KEY consumers_consumer_type_id_idx (consumer_type_id),
    KEY consumers_project_id_user_id_uuid_idx (project_id, user_id, uuid),
    KEY consumers_project_id_uuid_idx (project_id, uuid)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE allocations (
    created_at DATETIME,
    updated_at DATETIME,
    id INTEGER NOT NULL AUTO_INCREMENT,
    resource_provider_id INTEGER NOT NULL,
    consumer_id VARCHAR(36) NOT NULL,
    resource_class_id INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (id),
    KEY allocations_consumer_id_idx (consumer_id),
    KEY allocations_resource_class_id_idx (resource_class_id),
    KEY allocations_resource_provider_class_used_idx (resource_provider_id, resource_class_id, used)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT IGNORE INTO alembic_version (version_num) VALUES ('422ece571366');
