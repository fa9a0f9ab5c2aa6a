package dbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/sqlfence"
)

// transfer writes in a transaction that only the latest holder of the lock "orders" can commit.
func transfer(ctx context.Context, db *sql.DB, token etcdlock.Token, amount int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := sqlfence.Admit(ctx, tx, sqlfence.SQLite, "orders", token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + ?", amount); err != nil {
		return err
	}
	return tx.Commit()
}

// A holder with token 7 is suspended, and one with token 9 writes. When the first one goes on, it is refused.
func Example() {
	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	for _, statement := range []string{
		sqlfence.Schema(sqlfence.SQLite), "CREATE TABLE account (balance INT)", "INSERT INTO account VALUES (100)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(transfer(ctx, db, 7, 10))
	fmt.Println(transfer(ctx, db, 9, 20))
	err = transfer(ctx, db, 7, 40)
	fmt.Println(errors.Is(err, etcdlock.ErrStale), err)
	var balance int
	if err := db.QueryRowContext(ctx, "SELECT balance FROM account").Scan(&balance); err != nil {
		log.Fatal(err)
	}
	fmt.Println(balance)
	// Output:
	// <nil>
	// <nil>
	// true sqlfence: admitting token 7 of "orders": etcdlock: stale token: 9 has been admitted
	// 130
}
