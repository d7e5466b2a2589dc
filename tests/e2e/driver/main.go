// A driver as somebody else would write it, who has read the contract (seed 000 §7), knows the
// definitions and works with controller-runtime. The tests run it against the binding core.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Driver is what all parts of it know.
type Driver struct {
	Backend Backend
	// The name that classes give in spec.provisioner.
	Name string
	// Takes an address that is lost or being deleted for none, whatever the claim says.
	Eager bool
	// Gives an address back to the core as Available, whatever it is.
	Plain bool
	// Names its objects in its own way, writes IPv6 in another form, and tears down early.
	Rude bool
	// Writes the uid of the claim too, which it may.
	WithUID bool
	// How often the backend is looked at.
	Poll time.Duration
}

func (d Driver) finalizer() string {
	return d.Name + "/teardown"
}

// The indices of the cache.
const (
	byClaim    = "claim"
	byWorkload = "workload"
)

func main() {
	var driver Driver
	listen := flag.String("listen", "127.0.0.1:8082", "where health is served")
	flag.StringVar(&driver.Name, "name", "third-party.example.com", "the provisioner of its classes")
	flag.StringVar(&driver.Backend.Folder, "backend", "", "the folder that is its backend")
	flag.BoolVar(&driver.Eager, "eager", false, "serve also claims that are Bound with a lost or deleted address")
	flag.BoolVar(&driver.Plain, "plain", false, "clear Conflict and Lost with Available, whatever the address is")
	flag.BoolVar(&driver.Rude, "rude", false, "use own names and forms, and do not wait for the core at the end")
	flag.BoolVar(&driver.WithUID, "uid", false, "write the uid of the claim too")
	flag.DurationVar(&driver.Poll, "poll", time.Second, "how often the backend is looked at")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(driver, *listen); err != nil {
		ctrl.Log.Error(err, "the driver ends")
		os.Exit(1)
	}
}

func run(driver Driver, listen string) error {
	if err := driver.Backend.Open(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	addToScheme(scheme)
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: listen,
	})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	if err := index(ctx, mgr); err != nil {
		return err
	}
	claims := &Claims{mgr.GetClient(), driver}
	parts := []interface{ register(ctrl.Manager) error }{
		claims,
		&Addresses{mgr.GetClient(), driver},
		&Services{mgr.GetClient(), driver},
	}
	for _, part := range parts {
		if err := part.register(mgr); err != nil {
			return err
		}
	}
	sweep := func(ctx context.Context) error { return claims.sweep(ctx, mgr.GetAPIReader()) }
	if err := mgr.Add(manager.RunnableFunc(sweep)); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func index(ctx context.Context, mgr ctrl.Manager) error {
	indexer := mgr.GetFieldIndexer()
	err := indexer.IndexField(ctx, &IPAddress{}, byClaim, func(object client.Object) []string {
		if ref := object.(*IPAddress).Spec.ClaimRef; ref != nil {
			return []string{ref.Namespace + "/" + ref.Name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return indexer.IndexField(ctx, &IPAddress{}, byWorkload, func(object client.Object) []string {
		if workload := object.(*IPAddress).Status.AssociatedTo; workload != nil {
			return []string{workload.Namespace + "/" + workload.Name}
		}
		return nil
	})
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}
