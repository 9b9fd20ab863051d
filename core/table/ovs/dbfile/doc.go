// Package dbfile reads and writes the database files of ovsdb-server: stand-alone ones, and
// the logs of members of a cluster, which are only read.
//
// Both are logs of records, each with its length and SHA-1 before it. A stand-alone file has
// the schema first and then the changes of each transaction (ovsdb(5), ovsdb-tool(1)); a
// clustered one has entries of Raft's log, of which those count that were committed. What
// is damaged is found, and its place said.
package dbfile
