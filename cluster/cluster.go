// Package cluster is who belongs to a cluster, as one member sees it: how a data
// directory becomes a member of one (init, join), what the member keeps about itself
// (member.json, its certificate), and how the last member goes on alone (recover).
//
// # Invariants
//
//   - A member's id is durable before anybody hears it, and never votes again once its
//     log is gone (G34).
package cluster
