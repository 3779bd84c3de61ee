// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

// The library's Go binding makes a call for each domain after that for all of them
// (GetAllDomainStats asks for the number of virtual CPUs), so the call is made here. Below are the
// declarations of libvirt-common.h, libvirt-domain.h and virterror.h, whose layout has not changed
// since libvirt 1.2.8. The library is the one that the binding has loaded.

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct parameter {
	char field[80];
	int type; // 1: int
	union { int i; unsigned int ui; long long int l; unsigned long long int ul; double d; char b; char *s; } value;
};
struct record { void *domain; struct parameter *params; int nparams; };
struct failure { int code; int domain; char *message; };

static int (*get_all)(void *conn, unsigned int stats, struct record ***list, unsigned int flags);
static void (*free_all)(struct record **list);
static int (*get_uuid)(void *domain, char *text);
static struct failure *(*last_error)(void);

static int load(void) {
	void *library = dlopen("libvirt.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return 0;
	*(void **)&get_all = dlsym(library, "virConnectGetAllDomainStats");
	*(void **)&free_all = dlsym(library, "virDomainStatsRecordListFree");
	*(void **)&get_uuid = dlsym(library, "virDomainGetUUIDString");
	*(void **)&last_error = dlsym(library, "virGetLastError");
	return get_all && free_all && get_uuid && last_error;
}

struct state { char uuid[37]; int state, reason; };

// states returns how many domains there are, or -1 with the error of this thread. What it sets is
// to be freed.
static int states(void *conn, struct state **states, int *code, char **message) {
	struct record **list = NULL;
	int n = get_all(conn, 1, &list, 0); // 1: VIR_DOMAIN_STATS_STATE, which asks no emulator
	if (n < 0) {
		struct failure *f = last_error();
		*code = f ? f->code : 1;
		*message = f && f->message ? strdup(f->message) : NULL;
		return -1;
	}
	int found = 0;
	*states = calloc(n ? n : 1, sizeof(struct state));
	for (int i = 0; *states && i < n; i++) {
		struct state *s = *states + found;
		int has = 0;
		for (int p = 0; p < list[i]->nparams; p++) {
			struct parameter *v = list[i]->params + p;
			if (v->type != 1)
				continue;
			if (!strcmp(v->field, "state.state")) {
				s->state = v->value.i;
				has = 1;
			} else if (!strcmp(v->field, "state.reason")) {
				s->reason = v->value.i;
			}
		}
		if (has && get_uuid(list[i]->domain, s->uuid) == 0)
			found++;
	}
	free_all(list);
	return *states ? found : 0;
}
*/
import "C"

import (
	"errors"
	"sync"
	"unsafe"

	"libvirt.org/go/libvirt"
)

type domainState struct {
	state  State
	reason int
}

var load = sync.OnceValue(func() error {
	if C.load() == 0 {
		return errors.New(
			"libvirt's client library has no call for the states of all domains (virConnectGetAllDomainStats, " +
				"since 1.2.8)")
	}
	return nil
})

// states reads the states of all domains, by uuid, in one call.
func (c *libvirtConn) states() (map[string]domainState, error) {
	if err := load(); err != nil {
		return nil, err
	}
	raw, err := c.c.RawPtr()
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = libvirt.CloseRawPtr(raw) }() // one reference less; the connection stays
	var (
		list    *C.struct_state
		code    C.int
		message *C.char
	)
	n := C.states(unsafe.Pointer(raw), &list, &code, &message)
	defer C.free(unsafe.Pointer(list))
	defer C.free(unsafe.Pointer(message))
	if n < 0 {
		return nil, libvirt.Error{Code: libvirt.ErrorNumber(code),
			Message: C.GoString(message), Level: libvirt.ERR_ERROR}
	}
	all := make(map[string]domainState, n)
	for _, s := range unsafe.Slice(list, n) {
		all[C.GoString(&s.uuid[0])] = domainState{State(s.state), int(s.reason)}
	}
	return all, nil
}
