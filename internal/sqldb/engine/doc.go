// SPDX-License-Identifier: Apache-2.0

// Package engine is what differs from one database engine to the other, and what the packages of
// databases need beside package sqldb, which stands on it:
//
//	ParseAddress  name of a database ──▶ Address: its dialect, and a connector to its servers
//	Dialect       words of SQL, and what the errors of a driver mean; SQLite, MySQL, PostgreSQL
//	Error         what is wrong with a database, and what to do about it
//	TimeScan      a time column, as each driver gives it
//
// A connection to a server has its session set up, takes ? for parameters, and bounds the time of
// each statement. It is not used again after the server turned out to be read-only or gone. The
// package has no state, and looks at no schema.
package engine
