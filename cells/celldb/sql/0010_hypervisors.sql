-- What people see of a node: the type and the version of its hypervisor, as its driver reports them, and an address of its host. 0 and empty: not known. unknown_guests: how many guests its agent made that no server is about.
ALTER TABLE compute_nodes ADD COLUMN hypervisor_type $bytes(255) NOT NULL DEFAULT '';
ALTER TABLE compute_nodes ADD COLUMN hypervisor_version $int NOT NULL DEFAULT 0;
ALTER TABLE compute_nodes ADD COLUMN host_ip $bytes(255) NOT NULL DEFAULT '';
ALTER TABLE compute_nodes ADD COLUMN unknown_guests $int NOT NULL DEFAULT 0;
