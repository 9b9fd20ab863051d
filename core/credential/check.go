package credential

import (
	"fmt"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Check implements [core.Tables].
func (t *tables) Check(_ func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	want := newTables(t.limits)
	secrets := map[string]bool{}
	t.records.Scan(func(c *Credential) bool {
		if err = c.checkRecord(); err != nil {
			return false
		}
		if c.ID > index || c.Ended > index {
			err = fmt.Errorf("credential %d: ended at %d, the state's index is %d", c.ID, c.Ended, index)
			return false
		}
		if len(c.Secret) > 0 {
			k := c.key().by + "\x00" + string(c.Secret)
			if secrets[k] {
				err = fmt.Errorf("credential %d: another record has its secret", c.ID)
			}
			secrets[k] = true
		}
		want.put(nil, c)
		return err == nil
	})
	if err != nil {
		return err
	}
	if n := t.records.Len() - t.certificates; n > t.limits.credentials || t.certificates > t.limits.revocations {
		return fmt.Errorf("%d credentials and %d certificates: limits are %d and %d", n, t.certificates, t.limits.credentials, t.limits.revocations)
	}
	got := [...]int{t.known.Len(), t.ending.Len(), t.ended.Len(), t.closing.Len(), t.certificates}
	if all := [...]int{want.known.Len(), want.ending.Len(), want.ended.Len(), want.closing.Len(), want.certificates}; got != all {
		return fmt.Errorf("the tables have %v records, want %v", got, all)
	}
	return nil
}

// checkRecord verifies what a record says.
func (c *Credential) checkRecord() error {
	d := *c
	certificate := c.Method == Certificate
	if !c.Live() && !certificate {
		if len(c.Secret) > 0 {
			return fmt.Errorf("credential %d: it has ended and has a secret", c.ID)
		}
		d.Secret = placeholder(c.Method)
	}
	if err := d.check(); err != nil {
		return fmt.Errorf("credential %d: %w", c.ID, err)
	}
	switch {
	case c.ID == 0, !c.Live() && c.Ended < c.ID:
		return fmt.Errorf("credential %d: ended at %d", c.ID, c.Ended)
	case certificate && (c.Live() || c.Expired):
		return fmt.Errorf("credential %d: of a certificate that was not taken back", c.ID)
	case c.Live() && (c.EndedAt != 0 || c.EndedBy != "" || c.Expired || c.Closing):
		return fmt.Errorf("credential %d: it is live and has an end", c.ID)
	case c.Closing && !c.EndSessions:
		return fmt.Errorf("credential %d: sessions are to be closed that do not end with it", c.ID)
	case len(c.CreatedBy) > core.MaxOriginBytes || len(c.EndedBy) > core.MaxOriginBytes:
		return fmt.Errorf("credential %d: by whom is longer than %d bytes", c.ID, core.MaxOriginBytes)
	}
	return nil
}

// placeholder is a secret that could be one of the method.
func placeholder(m Method) []byte {
	if m == Token {
		return make([]byte, TokenBytes)
	}
	return []byte("x")
}
