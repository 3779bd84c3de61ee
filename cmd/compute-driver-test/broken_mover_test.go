// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

type (
	departReq = *driverv1.DepartInstanceRequest
	beginReq  = *driverv1.BeginArrival
	leaveReq  = *driverv1.LeaveInstanceRequest
)

var _ = broken(map[string]brokenPlugin{
	"lets what departs run on": {check: "migrate/depart",
		breakage: instead("Depart", &driverv1.DepartInstanceResponse{})},
	"removes what departs": {check: "migrate/depart",
		breakage: around("Depart", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			reply, err := next()
			if err == nil {
				err = s.fake.Destroy(ctx, req.(departReq).GetNode(), req.(departReq).GetUuid())
			}
			return reply, err
		})},
	"cannot depart twice": {check: "migrate/depart",
		breakage: around("Depart", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			list, err := s.fake.Instances(ctx, req.(departReq).GetNode())
			for _, i := range list {
				if i.UUID == req.(departReq).GetUuid() && i.Power == plugins.PowerShutdown {
					err = errors.New("the domain is not running")
				}
			}
			if err != nil {
				return nil, err
			}
			return next()
		})},
	"lets go of what it does not have": {check: "migrate/depart-unknown",
		breakage: instead("Depart", &driverv1.DepartInstanceResponse{})},
	"starts what arrives": {check: "migrate/arrive",
		breakage: around("Arrive", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			reply, err := next()
			if err == nil {
				_, err = s.fake.SetPower(ctx, req.(beginReq).GetNode(),
					req.(beginReq).GetSpec().GetUuid(), plugins.PowerRunning, false)
			}
			return reply, err
		})},
	"finds what arrived in the way": {check: "migrate/arrive-again",
		breakage: around("Arrive", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			if s.has(ctx, req.(beginReq).GetSpec().GetUuid()) {
				return nil, errors.New("there is a domain of that name")
			}
			return next()
		})},
	"keeps what is elsewhere": {check: "migrate/leave", breakage: instead("Leave", &driverv1.LeaveInstanceResponse{})},
	"misses what is to leave": {check: "migrate/leave",
		breakage: around("Leave", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			if !s.has(ctx, req.(leaveReq).GetUuid()) {
				return nil, plugins.ErrInstanceNotFound
			}
			return next()
		})},
})
