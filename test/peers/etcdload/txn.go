//go:build linux

package etcdload

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// PutAll puts keys in one transaction, if (guarded) each was last modified at a
// revision, and returns that of the transaction. It fails if etcd decides otherwise.
func PutAll(ctx context.Context, c *clientv3.Client, keys []string, value string, guarded bool, last int64) (int64, error) {
	txn := c.Txn(ctx)
	ops := make([]clientv3.Op, len(keys))
	var is []clientv3.Cmp
	for i, key := range keys {
		ops[i] = clientv3.OpPut(key, value)
		if guarded {
			is = append(is, clientv3.Compare(clientv3.ModRevision(key), "=", last))
		}
	}
	resp, err := txn.If(is...).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return 0, fmt.Errorf("transaction on %s: a comparison does not hold", keys[0])
	}
	return resp.Header.Revision, nil
}
