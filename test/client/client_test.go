package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/luthermonson/go-proxmox"
	"github.com/proxops/proxops/internal/pvesim"
)

const (
	rootToken  = "root@pam!full"
	rootSecret = "11111111-1111-4111-8111-111111111111"
)

// serve starts a cluster of two nodes with a few guests, over TLS.
func serve(t *testing.T) (*pvesim.Server, *pvesim.World) {
	t.Helper()
	w := pvesim.New(pvesim.Options{Seed: 1, TimeScale: .01}, pvesim.Estate(1, 12, 2))
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		w.Stop()
	})
	return srv, w
}

func connect(srv *pvesim.Server, auth proxmox.Option) *proxmox.Client {
	return proxmox.NewClient(srv.URL+"/api2/json", proxmox.WithInsecureSkipVerify(), auth)
}

// check ends the test on the first error: ok of a call, done of a call's task.
type check struct {
	*testing.T
	ctx context.Context
}

func (c check) ok(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

func (c check) done(what string, task *proxmox.Task, err error) {
	c.Helper()
	c.ok(what, err)
	c.ok(what, task.Wait(c.ctx, 5*time.Millisecond, 20*time.Second))
	if !task.IsSuccessful || task.ExitStatus != "OK" {
		c.Fatalf("%s: the task ended %q", what, task.ExitStatus)
	}
}

// The client lists what is there.
func TestLists(t *testing.T) {
	srv, w := serve(t)
	c := check{t, t.Context()}
	cl := connect(srv, proxmox.WithAPIToken(rootToken, rootSecret))
	v, err := cl.Version(c.ctx)
	c.ok("version", err)
	if v.Release != "9.2" {
		t.Errorf("version %+v", v)
	}
	nodes, err := cl.Nodes(c.ctx)
	c.ok("nodes", err)
	want := map[int]string{}
	w.View(func(s *pvesim.State) {
		if len(nodes) != len(s.Nodes) {
			t.Errorf("%d nodes, want %d", len(nodes), len(s.Nodes))
		}
		for id, g := range s.Guests {
			name := g.Config["name"]
			if g.Kind == "lxc" {
				name = g.Config["hostname"]
			}
			want[id] = g.Kind + " " + g.Node + " " + name
		}
	})
	got := map[int]string{}
	for _, n := range nodes {
		if n.Status != "online" {
			t.Errorf("node %+v", n)
		}
		node, err := cl.Node(c.ctx, n.Node)
		c.ok("node "+n.Node, err)
		vms, err := node.VirtualMachines(c.ctx)
		c.ok("VMs of "+n.Node, err)
		for _, vm := range vms {
			got[int(vm.VMID)] = "qemu " + n.Node + " " + vm.Name
		}
		cts, err := node.Containers(c.ctx)
		c.ok("containers of "+n.Node, err)
		for _, ct := range cts {
			got[int(ct.VMID)] = "lxc " + n.Node + " " + ct.Name
		}
		storages, err := node.Storages(c.ctx)
		c.ok("storages of "+n.Node, err)
		if !slices.ContainsFunc(storages, func(s *proxmox.Storage) bool { return s.Name == "local-lvm" && s.Type == "lvmthin" }) {
			t.Errorf("%s lacks local-lvm", n.Node)
		}
	}
	for id, w := range want {
		if got[id] != w {
			t.Errorf("guest %d is %q, want %q", id, got[id], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d guests, want %d", len(got), len(want))
	}
	cluster, err := cl.Cluster(c.ctx)
	c.ok("cluster", err)
	all, err := cluster.Resources(c.ctx, "vm")
	c.ok("resources", err)
	if len(all) != len(want) {
		t.Errorf("/cluster/resources has %d guests, want %d", len(all), len(want))
	}
}

// A VM from create to destroy, and a clone of it.
func TestLife(t *testing.T) {
	srv, _ := serve(t)
	c := check{t, t.Context()}
	cl := connect(srv, proxmox.WithAPIToken(rootToken, rootSecret))
	node, err := cl.Node(c.ctx, "pve01")
	c.ok("node", err)
	task, err := node.NewVirtualMachine(c.ctx, 9000,
		proxmox.VirtualMachineOption{Name: "name", Value: "born"},
		proxmox.VirtualMachineOption{Name: "memory", Value: 1024},
		proxmox.VirtualMachineOption{Name: "cores", Value: 2},
		proxmox.VirtualMachineOption{Name: "scsi0", Value: "local-lvm:4"},
		proxmox.VirtualMachineOption{Name: "net0", Value: "virtio,bridge=vmbr0"})
	c.done("create", task, err)
	vm, err := node.VirtualMachine(c.ctx, 9000)
	c.ok("read", err)
	if vm.Name != "born" || vm.VirtualMachineConfig.Cores == nil || *vm.VirtualMachineConfig.Cores != 2 || !strings.HasPrefix(vm.VirtualMachineConfig.SCSIs["scsi0"], "local-lvm:vm-9000-disk-0,") || !vm.IsStopped() {
		t.Errorf("created: %s, %+v", vm.Name, vm.VirtualMachineConfig)
	}
	task, err = vm.Start(c.ctx)
	c.done("start", task, err)
	c.ok("status", vm.Ping(c.ctx))
	if !vm.IsRunning() {
		t.Errorf("after a start the VM is %s", vm.Status)
	}
	task, err = vm.Config(c.ctx, proxmox.VirtualMachineOption{Name: "description", Value: "a note"}, proxmox.VirtualMachineOption{Name: "tags", Value: "b;a"})
	c.done("config", task, err)
	newid, task, err := vm.Clone(c.ctx, &proxmox.VirtualMachineCloneOptions{NewID: 9001, Name: "twin", Full: true})
	c.done("clone", task, err)
	twin, err := node.VirtualMachine(c.ctx, newid)
	c.ok("read the clone", err)
	if newid != 9001 || twin.Name != "twin" || twin.VirtualMachineConfig.Description != "a note" || twin.VirtualMachineConfig.Tags != "a;b" {
		t.Errorf("clone %d: %s, %+v", newid, twin.Name, twin.VirtualMachineConfig)
	}
	task, err = vm.Delete(c.ctx, nil)
	if err == nil {
		t.Fatalf("a running VM was destroyed: %+v", task)
	}
	task, err = vm.Stop(c.ctx)
	c.done("stop", task, err)
	task, err = vm.ResizeDisk(c.ctx, "scsi0", "+1G")
	c.done("resize", task, err)
	for _, v := range []*proxmox.VirtualMachine{vm, twin} {
		task, err = v.Delete(c.ctx, nil)
		c.done("delete", task, err)
	}
	for _, id := range []int{9000, 9001} {
		if _, err := node.VirtualMachine(c.ctx, id); err == nil {
			t.Errorf("%d is still there", id)
		}
	}
	left, err := node.Storage(c.ctx, "local-lvm")
	c.ok("storage", err)
	content, err := left.GetContent(c.ctx)
	c.ok("content", err)
	for _, v := range content {
		if strings.Contains(v.Volid, "-9000-") || strings.Contains(v.Volid, "-9001-") {
			t.Errorf("%s is left", v.Volid)
		}
	}
}

// Tickets: a log-in by password works for reads and writes; a wrong one does not.
func TestLogin(t *testing.T) {
	s, err := pvesim.Recorded("base")
	if err != nil {
		t.Fatal(err)
	}
	w := pvesim.New(pvesim.Options{Seed: 1}, s)
	defer w.Stop()
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	c := check{t, t.Context()}
	cl := connect(srv, proxmox.WithLogins("root@pam", "pvetest1"))
	node, err := cl.Node(c.ctx, "pve01")
	c.ok("node", err)
	task, err := node.NewVirtualMachine(c.ctx, 100)
	c.done("create", task, err)
	_, err = connect(srv, proxmox.WithLogins("root@pam", "wrong")).Nodes(c.ctx)
	if !proxmox.IsNotAuthorized(err) {
		t.Errorf("a wrong password: %v", err)
	}
	task, err = node.NewVirtualMachine(c.ctx, 101, proxmox.VirtualMachineOption{Name: "scsi0", Value: "local-dir:0,import-from=local:import/nosuch.raw"})
	c.ok("a create that fails in its task", err)
	var failed *proxmox.TaskFailedError
	if err := task.Wait(c.ctx, 5*time.Millisecond, 20*time.Second); !errors.As(err, &failed) {
		t.Errorf("an import of nothing ended %q, %v", task.ExitStatus, err)
	}
}
