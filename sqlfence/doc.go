// Package sqlfence refuses the writes of a replaced lock holder inside a database transaction, by the fencing token of its
// hold. It needs database/sql only.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	if err := sqlfence.Admit(ctx, tx, sqlfence.Postgres, "orders", hold.Token()); err != nil {
//		tx.Rollback()
//		return err // errors.Is(err, etcdlock.ErrStale): the lock has a new owner
//	}
//	_, err = tx.ExecContext(ctx, "UPDATE ...")
//	...
//	err = tx.Commit()
//
// The table of [Schema] has a row for each name, with the highest token of a committed transaction.
//
// # Guarantees
//
//  1. Transactions of one name that have called Admit run one after another: the row stays locked until the commit.
//  2. A transaction with a lower token than one that has been committed is refused.
//
// Take a holder that is suspended between Admit and Commit. Its write comes before the next holder's first write, or
// its commit fails, or its transaction is refused. The next holder waits for it as long as the database keeps the
// transaction open: set a limit for idle transactions (idle_in_transaction_session_timeout, wait_timeout).
//
// # Not guaranteed
//
// Writes that do not go through Admit are not fenced. Tokens of one lock only can be compared, and only those of exclusive
// holds: see [etcdlock.Fence].
package sqlfence
