// SPDX-License-Identifier: Apache-2.0

package discovery

// KVM is what the kernel's hypervisor can do.
type KVM struct {
	// SEV is nil if the kernel does not know of it.
	SEV *SEV
}

// SEV is what kvm_amd was allowed to do, and how many encrypted guests can run at once, which is 0
// if the misc cgroup controller does not say: libvirt's domain capabilities then do.
type SEV struct {
	SEV, ES, SNP     bool
	Guests, ESGuests int
}

// KVM reads it.
func (r *Reader) KVM() (k KVM, err error) {
	const module = "sys/module/kvm_amd"
	err = inDir(r.root, module+"/parameters", func(d *Dir) error { return k.readSEV(r, d) })
	if absent(err) && !exists(r.root, module) {
		return KVM{}, nil
	}
	if err != nil {
		return KVM{}, withHint(err)
	}
	return k, nil
}

func (k *KVM) readSEV(r *Reader, d *Dir) error {
	var s SEV
	for name, to := range map[string]*bool{"sev": &s.SEV, "sev_es": &s.ES, "sev_snp": &s.SNP} {
		on, err := value(d, name, yesNo)
		switch {
		case absent(err) && name == "sev":
			return nil
		case absent(err): // kernels before 5.11 and 6.11
		case err != nil:
			return err
		}
		*to = on
	}
	k.SEV = &s
	const file = "sys/fs/cgroup/misc.capacity"
	text, err := r.root.Text(file)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for resource, to := range map[string]*int{"sev": &s.Guests, "sev_es": &s.ESGuests} {
		if *to, err = capacity(text, resource); err != nil {
			return malformed(r.root, file, text, "%v", err)
		}
	}
	return nil
}
