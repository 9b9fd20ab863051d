package ovsdb

import "testing"

const corpusSchema = "testdata/corpus.ovsschema"

// Every operation, each constraint and each error are as ovsdb-server has them.
func TestCorpus(t *testing.T) {
	p := startPeers(t, standAlone, corpusSchema)
	c := p.connect()
	for _, ops := range corpus(t, "corpus.txt") {
		c.both("transact", append([]any{"Corpus"}, ops...)...)
	}
}
