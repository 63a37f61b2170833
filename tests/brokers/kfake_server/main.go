// A cluster of franz-go's kfake for the tests, with faults by HTTP.
//
// It prints one line of JSON, {"bootstrap": "HOST:PORT,…", "control": "HOST:PORT"}, and ends when its standard input ends,
// so that it never outlives the tests. What the tests do to it (tests/brokers/kfake.py is the client):
//
//	POST   /faults         respond to matching requests with an error code (0: only count them); the body is a fault, the response {"id": N}
//	DELETE /faults/{id}    the fault ends; {"hits": how many requests it has met}
//	POST   /leaders        move the leaders of all partitions
//	POST   /coordinators   move the coordinators of all groups and transactional ids
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// fault says which requests get an error code in response. An empty selector matches everything.
type fault struct {
	API             int16   `json:"api"`
	Code            int16   `json:"code"`
	Topic           string  `json:"topic"`
	Partitions      []int32 `json:"partitions"`
	Group           string  `json:"group"`
	TransactionalID string  `json:"transactional_id"`
	TopLevel        bool    `json:"top_level"` // the request's own error code, not those of its partitions
	Skip            int     `json:"skip"`      // matching requests that are left alone first
	Count           int     `json:"count"`     // requests that get the code; -1 for all
}

// control keeps the faults that were injected.
type control struct {
	cluster *kfake.Cluster
	mutex   sync.Mutex
	faults  map[int]*kfake.FaultHandle
}

func (c *control) inject(w http.ResponseWriter, r *http.Request) {
	var asked fault
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	known, _ := kerr.ErrorForCode(asked.Code).(*kerr.Error)
	if asked.Code != 0 && (known == nil || known.Code != asked.Code) {
		http.Error(w, fmt.Sprintf("unknown error code %d", asked.Code), http.StatusBadRequest)
		return
	}
	handle := c.cluster.Fault(kfake.Fault{
		Keys:       []kmsg.Key{kmsg.Key(asked.API)},
		Topic:      asked.Topic,
		Partitions: asked.Partitions,
		Group:      asked.Group,
		TxnID:      asked.TransactionalID,
		TopLevel:   asked.TopLevel,
		Err:        known,
		Count:      asked.Count,
		Observe:    asked.Code == 0,
		When:       after(asked.Skip),
	})
	c.mutex.Lock()
	defer c.mutex.Unlock()
	id := len(c.faults) + 1
	c.faults[id] = handle
	respond(w, map[string]int{"id": id})
}

// after lets the first requests pass. It is asked once for each partition of a request.
func after(skip int) func(kmsg.Request) bool {
	seen := map[kmsg.Request]int{}
	return func(request kmsg.Request) bool {
		if _, ok := seen[request]; !ok {
			seen[request] = len(seen)
		}
		return seen[request] >= skip
	}
}

func (c *control) end(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(r.PathValue("id"))
	c.mutex.Lock()
	handle := c.faults[id]
	c.mutex.Unlock()
	if handle == nil {
		http.NotFound(w, r)
		return
	}
	handle.Remove()
	respond(w, map[string]int{"hits": handle.Hits()})
}

func respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Print(err)
	}
}

func main() {
	brokers := flag.Int("brokers", 1, "number of brokers")
	release := flag.String("release", "", "APIs as of this release of Kafka, such as 3.9; by default all")
	flag.Parse()
	options := []kfake.Opt{kfake.NumBrokers(*brokers)}
	if *release != "" {
		versions := kversion.FromString(*release)
		if versions == nil {
			log.Fatalf("unknown release %q", *release)
		}
		options = append(options, kfake.MaxVersions(versions))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	c := &control{cluster: cluster, faults: map[int]*kfake.FaultHandle{}}
	http.HandleFunc("POST /faults", c.inject)
	http.HandleFunc("DELETE /faults/{id}", c.end)
	http.HandleFunc("POST /leaders", func(w http.ResponseWriter, _ *http.Request) {
		cluster.ShufflePartitionLeaders()
		respond(w, map[string]int{})
	})
	http.HandleFunc("POST /coordinators", func(w http.ResponseWriter, _ *http.Request) {
		cluster.RehashCoordinators()
		respond(w, map[string]int{})
	})
	go func() { log.Fatal(http.Serve(listener, nil)) }()
	shown := map[string]string{
		"bootstrap": strings.Join(cluster.ListenAddrs(), ","),
		"control":   listener.Addr().String(),
	}
	if err := json.NewEncoder(os.Stdout).Encode(shown); err != nil {
		log.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
