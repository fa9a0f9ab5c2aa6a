// Package dbtest tests package sqlfence on real databases: SQLite, and PostgreSQL and MariaDB if they are installed. It is
// a module of its own, so that no user of the library needs their drivers.
package dbtest
