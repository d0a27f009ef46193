package live

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/secret"
)

// whole is a cluster of two nodes that answers everything: a running guest, a
// template that may be pruned, a storage and a free vmid.
func whole() answers {
	a := base(vmRow(100, "pve01", "running"), vmRow(900, "pve01", "stopped"),
		row{"type": "storage", "id": "storage/pve01/local", "node": "pve01", "storage": "local", "plugintype": "dir", "status": "available", "content": "iso,images"})
	a["/cluster/resources"].([]row)[1]["status"] = "online"
	a["/nodes/pve02/tasks"] = []row{}
	a["/nodes/pve01/qemu/100/pending"] = config("name", "web", "tags", "proxops")
	a["/nodes/pve01/qemu/100/status/current"] = row{"status": "stopped"}
	a["/nodes/pve01/qemu/900/pending"] = config("name", "golden", "tags", "proxops", "template", "1", "scsi0", "local:900/base-900-disk-0.qcow2,size=1G")
	a["/nodes/pve01/storage/local/content"] = []row{
		{"volid": "local:900/base-900-disk-0.qcow2", "vmid": 900, "size": 1},
		{"volid": "local:900/base-900-disk-0.qcow2/101/vm-101-disk-0.qcow2", "vmid": 101, "size": 1},
		{"volid": "local:102/vm-102-disk-0.qcow2", "vmid": 102, "parent": "900/base-900-disk-0.qcow2", "size": 1},
		{"volid": "local:103/vm-103-disk-0.qcow2", "vmid": 103, "size": 1},
	}
	a["/nodes/pve01/storage/local/content?content=iso"] = []row{{"volid": "local:iso/deb.iso", "size": 1}}
	a["/cluster/nextid?vmid=110"] = "110"
	return a
}

func wants() Want {
	return Want{Guests: map[int]Declared{100: {}, 110: {}}, Stores: map[Store][]string{{"pve01", "local"}: {"iso"}}}
}

// Every answer that is missing makes the snapshot incomplete, so that nothing
// is pruned, and leaves what it is about unknown.
func TestEachMissingAnswerIsTold(t *testing.T) {
	refused := errors.New("nope")
	unknown := func(id int, text string) func(*Snapshot) bool {
		return func(s *Snapshot) bool { return strings.Contains(s.Guests[id].Unknown, text) }
	}
	for _, tt := range []struct {
		name   string
		change func(a answers)
		told   string
		also   func(s *Snapshot) bool
	}{
		{"nothing", func(answers) {}, "", func(s *Snapshot) bool {
			return s.Free[110] && len(s.Contents[Store{"pve01", "local"}].Files) == 1 && s.Guests[100].Status == "stopped"
		}},
		{"node of the allow-list", func(a answers) {
			rows := a["/cluster/resources"].([]row)
			a["/cluster/resources"] = append(rows[:1:1], rows[2:]...)
		}, "node pve02: on the allow-list", nil},
		{"node offline", func(a answers) { a["/cluster/resources"].([]row)[0]["status"] = "offline" }, "node pve01: the cluster says that it is offline", unknown(100, "does not answer")},
		{"node out of reach", func(a answers) { delete(a, "/nodes/pve01/tasks") }, "node pve01: ", unknown(100, "does not answer")},
		{"running tasks", func(a answers) { a["/nodes/pve01/tasks"] = refused }, "node pve01: its running tasks", nil},
		{"vmid", func(a answers) { a["/cluster/nextid?vmid=110"] = refused }, "vmid 110: whether it is free", func(s *Snapshot) bool {
			_, asked := s.Free[110]
			return !asked
		}},
		{"files", func(a answers) { a["/nodes/pve01/storage/local/content?content=iso"] = refused }, "storage local on pve01", func(s *Snapshot) bool {
			return s.Contents[Store{"pve01", "local"}].Err != ""
		}},
		{"config", func(a answers) { a["/nodes/pve01/qemu/100/pending"] = refused }, "guest 100: its config could not be read", unknown(100, "could not be read")},
		{"power state", func(a answers) { a["/nodes/pve01/qemu/100/status/current"] = refused }, "guest 100: whether it runs", unknown(100, "whether it runs")},
		{"linked clones", func(a answers) { a["/nodes/pve01/storage/local/content"] = refused }, "storage local on pve01", nil},
		{"options", func(a answers) { a["/cluster/options"] = refused }, "datacenter options", nil},
		{"permissions", func(a answers) { a["/access/permissions"] = refused }, "the token's permissions", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := whole()
				tt.change(a)
				s := read(t, a, wants())
				if got := strings.Join(s.Problems, "\n"); s.Complete != (tt.told == "") || !strings.Contains(got, tt.told) {
					t.Errorf("complete %v, want %q in:\n%s", s.Complete, tt.told, got)
				}
				if tt.also != nil && !tt.also(s) {
					t.Errorf("100: %+v, free %v, contents %v", s.Guests[100], s.Free, s.Contents)
				}
			})
		})
	}
}

// Without the list of the cluster there is no snapshot.
func TestNoListingNoSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := whole()
		a["/cluster/resources"] = errors.New("nope")
		c, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{"https://pve01:8006"}, Nodes: []string{"pve01"},
			Auth: pve.Credentials{TokenID: "root@pam!full", TokenSecret: secret.New("11111111-1111-4111-8111-111111111111")}, Transport: a})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := Read(t.Context(), c.Reader(), Want{Nodes: []string{"pve01"}}); err == nil {
			t.Errorf("%d guests, complete %v", len(s.Guests), s.Complete)
		}
	})
}

// A linked clone is known by its volume's name or by its parent; where neither
// is told, the storage is named.
func TestLinkedClones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := whole()
		g := read(t, a, wants()).Guests[900]
		if fmt.Sprint(g.Linked, g.LinkedUnknown) != "[101 102] []" {
			t.Errorf("linked %v, unknown on %v", g.Linked, g.LinkedUnknown)
		}
		a["/nodes/pve01/qemu/900/pending"] = config("name", "golden", "tags", "proxops", "template", "1", "scsi0", "lvm:base-900-disk-0,size=1G")
		g = read(t, a, wants()).Guests[900]
		if fmt.Sprint(g.Linked, g.LinkedUnknown) != "[] [lvm]" {
			t.Errorf("linked %v, unknown on %v", g.Linked, g.LinkedUnknown)
		}
	})
}

// A lock stands for work under way, also without a task that is seen.
func TestLockedIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := whole()
		a["/nodes/pve01/qemu/100/pending"] = config("name", "web", "tags", "proxops", "lock", "backup")
		if g := read(t, a, wants()).Guests[100]; !strings.HasPrefix(g.Busy, "locked (backup)") {
			t.Errorf("%q", g.Busy)
		}
	})
}

// turns answers a path's n-th request with its n-th value, then with the last.
type turns struct {
	answers
	of map[string][]any
}

func (x turns) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(req.URL.Path, "/api2/json")
	if list := x.of[path]; len(list) > 0 {
		x.answers[path] = list[0]
		x.of[path] = list[min(1, len(list)-1):]
	}
	return x.answers.RoundTrip(req)
}

// A lock is stale where it is of a kind that a task takes and gives back, and
// every task that could hold it is in view and none does; before and after the
// lists the lock is the same.
func TestAbandonedLocks(t *testing.T) {
	task := func(kind, id string, ended bool) []any {
		r := row{"upid": "UPID:pve01:00000001:00000001:65000000:" + kind + ":" + id + ":root@pam:", "node": "pve01", "type": kind, "id": id, "user": "root@pam", "starttime": 1}
		if ended {
			r["endtime"], r["status"] = 2, "unexpected status"
		}
		return []any{[]row{r}}
	}
	// others is a task of another guest: PVE does not list it among this one's.
	others := func(kind, id string) []any {
		list := task(kind, id, false)[0]
		return []any{list, []row{}, list}
	}
	blind := row{"/vms": row{"VM.Audit": 1}}
	for _, c := range []struct {
		name, lock string
		tasks      []any // what the lists of tasks say, one after the other
		after      any   // the config at its second read
		perms      row
		stale      bool
		says       string
	}{
		{name: "no task", lock: "clone", stale: true, says: "locked (clone): no task works on it"},
		{name: "no task", lock: "backup", stale: true},
		{name: "no task", lock: "snapshot-delete", stale: true},
		{name: "hibernated", lock: "suspended"},
		{name: "mounted by hand", lock: "mounted"},
		{name: "a lock of tomorrow", lock: "teleport"},
		{name: "moves from a node that is not seen", lock: "migrate"},
		{name: "its task has ended", lock: "create", tasks: task("qmcreate", "100", true), stale: true, says: "its task qmcreate of root@pam has ended (unexpected status)"},
		{name: "its task runs", lock: "create", tasks: task("qmcreate", "100", false), says: "task qmcreate of root@pam is running"},
		{name: "another's clone runs", lock: "clone", tasks: others("qmclone", "900"), says: "task qmclone of root@pam is running"},
		{name: "another's clone runs", lock: "create", tasks: others("vzclone", "900"), says: "task vzclone of root@pam is running"},
		{name: "another's start runs", lock: "clone", tasks: others("qmstart", "900"), stale: true},
		{name: "another's backup runs", lock: "backup", tasks: others("vzdump", "900"), stale: true},
		{name: "a backup of many runs", lock: "backup", tasks: task("vzdump", "", false), says: "task vzdump of root@pam is running"},
		{name: "a backup of many began after the first lists", lock: "backup", tasks: append([]any{[]row{}, []row{}}, task("vzdump", "", false)...), says: "task vzdump of root@pam is running"},
		{name: "somebody watches", lock: "backup", tasks: task("vncproxy", "100", false), stale: true},
		{name: "a task began after the first lists", lock: "snapshot", tasks: append([]any{[]row{}, []row{}}, task("qmsnapshot", "100", false)...), says: "task qmsnapshot of root@pam is running"},
		{name: "the lists end", lock: "snapshot", tasks: []any{[]row{}, []row{}, errors.New("no more")}},
		{name: "unlocked meanwhile", lock: "clone", after: config("name", "web")},
		{name: "locked anew meanwhile", lock: "clone", after: config("name", "web", "lock", "backup")},
		{name: "unread meanwhile", lock: "clone", after: errors.New("gone")},
		{name: "blind", lock: "clone", perms: blind, says: "with Sys.Audit on /nodes/pve01"},
		{name: "blind, and one has ended", lock: "create", perms: blind, tasks: task("qmcreate", "100", true), says: "has ended (unexpected status); no task that this token may see"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := base(vmRow(100, "pve01", "stopped"))
			if c.perms != nil {
				a["/access/permissions"] = c.perms
			}
			first := config("lock", c.lock)
			if c.after == nil {
				c.after = first
			}
			g := read(t, turns{a, map[string][]any{"/nodes/pve01/tasks": c.tasks, "/nodes/pve01/qemu/100/pending": {first, c.after}}},
				Want{Guests: map[int]Declared{100: {}}}).Guests[100]
			if g.Stale != c.stale || !strings.HasPrefix(g.Busy, "locked ("+c.lock+")") || !strings.Contains(g.Busy, c.says) {
				t.Errorf("%s, %s: stale %v, %q", c.lock, c.name, g.Stale, g.Busy)
			}
		})
	}
}

// Two guests that had the same vmid one after the other differ in identity by
// each of its parts alone.
func TestIdentityTellsApart(t *testing.T) {
	of := func(lxc bool, kv ...string) string {
		g := field.Guest{LXC: lxc, Config: map[string]field.Entry{}}
		for i := 0; i < len(kv); i += 2 {
			g.Config[kv[i]] = field.Entry{Value: &kv[i+1]}
		}
		return Identity(&g)
	}
	for _, pair := range [][2]string{
		{of(false, "vmgenid", "g", "smbios1", "uuid=u"), of(false, "vmgenid", "h", "smbios1", "uuid=u")},
		{of(false, "vmgenid", "g", "smbios1", "uuid=u"), of(false, "vmgenid", "g", "smbios1", "uuid=v")},
		{of(false, "name", "a", "scsi0", "local:1/a,size=1G"), of(false, "name", "a", "scsi0", "local:1/b,size=1G")},
		{of(false, "name", "a", "vmgenid", "0"), of(false, "name", "b", "vmgenid", "0")},
		{of(true, "hostname", "a", "rootfs", "local:1/a,size=1G"), of(true, "hostname", "b", "rootfs", "local:1/a,size=1G")},
		{of(true, "hostname", "a", "rootfs", "local:1/a,size=1G"), of(true, "hostname", "a", "rootfs", "local:1/b,size=1G")},
		{of(true, "hostname", "a", "rootfs", "local:1/a,size=1G"), of(true, "hostname", "a", "rootfs", "local:1/a,size=2G")},
		{of(true, "hostname", "a", "net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01"), of(true, "hostname", "a", "net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02")},
		{of(true, "hostname", "a", "net3", "name=eth3,hwaddr=BC:24:11:00:00:01"), of(true, "hostname", "a")},
	} {
		if pair[0] == pair[1] {
			t.Errorf("both are %q", pair[0])
		}
	}
	if a, b := of(false, "name", "a", "scsi0", "local:1/a,size=1G"), of(false, "name", "a", "scsi0", "local:1/a,size=2G"); a != b {
		t.Errorf("growing a volume makes another guest: %q, %q", a, b)
	}
	mac := "name=eth0,hwaddr=bc:24:11:00:00:02,bridge=vmbr0"
	waits := &field.Guest{LXC: true, Config: map[string]field.Entry{"net0": {Value: new("name=eth0,hwaddr=BC:24:11:00:00:01"), Pending: &mac}}}
	if a, b := Identity(waits), of(true, "net0", "name=eth0,hwaddr=BC:24:11:00:00:02"); a != b {
		t.Errorf("a stop makes another guest: %q, %q", a, b)
	}
}

// A delete takes along what the config names, be it pending or unused.
func TestVolumes(t *testing.T) {
	text := func(s string) *string { return &s }
	g := &field.Guest{Config: map[string]field.Entry{
		"scsi0":   {Value: text("local:100/vm-100-disk-0.raw,size=1G"), Pending: text("lvm:vm-100-disk-3,size=1G")},
		"scsi1":   {Pending: text("lvm:vm-100-disk-1,size=7G")},
		"unused0": {Value: text("lvm:vm-100-disk-2")},
		"scsi2":   {Value: text("none,media=cdrom"), Pending: text("local:iso/deb.iso,media=cdrom")},
		"ide2":    {Value: text("lvm:vm-100-cloudinit,media=cdrom")},
		"name":    {Value: text("local:100/x.raw")},
	}}
	if got, want := strings.Join(Volumes(g), " "), "local:100/vm-100-disk-0.raw lvm:vm-100-cloudinit lvm:vm-100-disk-1 lvm:vm-100-disk-2 lvm:vm-100-disk-3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What PVE lists without a vmid is no guest 0, and it is told.
func TestRowWithoutAVmid(t *testing.T) {
	for _, id := range []any{nil, 0, -5, "x", -1e300} {
		synctest.Test(t, func(t *testing.T) {
			a := whole()
			odd := vmRow(100, "pve01", "running")
			odd["id"], odd["vmid"] = "qemu/odd", id
			a["/cluster/resources"] = append(a["/cluster/resources"].([]row), odd)
			s := read(t, a, wants())
			if len(s.Guests) != 2 || s.Complete || !strings.Contains(strings.Join(s.Problems, "\n"), "without a usable vmid (\"qemu/odd\"") {
				t.Errorf("vmid %v: %d guests, complete %v, %q", id, len(s.Guests), s.Complete, s.Problems)
			}
		})
	}
}

// Jobs that leave a guest out by name are told with those that name it, and a
// listing that is refused is named, not taken for an empty one.
func TestReadJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := whole()
		a["/cluster/backup"] = []row{{"id": "nightly", "vmid": "100,101"}, {"id": "rest", "all": 1, "exclude": "100"}}
		a["/cluster/replication"] = []row{{"id": "100-0", "guest": 100}}
		a["/cluster/ha/resources"] = []row{{"sid": "vm:100", "state": "ignored"}}
		jobs := func() *Jobs {
			s := &Snapshot{}
			c, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{"https://pve01:8006"}, Nodes: []string{"pve01"},
				Auth: pve.Credentials{TokenID: "root@pam!full", TokenSecret: secret.New("11111111-1111-4111-8111-111111111111")}, Transport: a})
			if err != nil {
				t.Fatal(err)
			}
			if err := ReadJobs(t.Context(), c.Reader(), s); err != nil {
				t.Fatal(err)
			}
			return s.Jobs
		}
		if j := jobs(); fmt.Sprintf("%v %v %v %v", j.Backup[100], j.Replication[100], j.HA[100], j.Unread) != "[nightly rest] [100-0] ignored []" {
			t.Errorf("%+v", j)
		}
		for _, path := range []string{"/cluster/backup", "/cluster/replication", "/cluster/ha/resources"} {
			a[path] = errors.New("Permission check failed")
		}
		if j := jobs(); fmt.Sprint(j.Unread) != "[HA resources backup jobs replication jobs]" {
			t.Errorf("unread %v", j.Unread)
		}
	})
}
