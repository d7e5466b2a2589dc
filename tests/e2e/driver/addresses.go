package main

import (
	"context"
	"net/netip"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Addresses tears down what is deleted, and says what became of the reservations (§7, 4 and 6).
type Addresses struct {
	client.Client
	Driver
}

func (a *Addresses) register(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).For(&IPAddress{}).Complete(a)
}

func (a *Addresses) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var address IPAddress
	if err := a.Get(ctx, request.NamespacedName, &address); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ip, err := netip.ParseAddr(address.Spec.Address)
	ref := address.Spec.Source.ProviderRef
	if err != nil || ref == nil || !controllerutil.ContainsFinalizer(&address, a.finalizer()) {
		return reconcile.Result{}, nil
	}
	if !address.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, client.IgnoreNotFound(a.tearDown(ctx, &address, ref.ID, ip))
	}
	phase, err := a.observe(ref.ID, ip, &address)
	if err != nil {
		return reconcile.Result{}, err
	}
	if phase != address.Status.Phase {
		log.FromContext(ctx).Info("phase", "from", address.Status.Phase, "to", phase)
		address.Status.Phase = phase
		if err := a.Status().Update(ctx, &address); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	// A folder tells nobody when it changes.
	return reconcile.Result{RequeueAfter: a.Poll}, nil
}

// observe returns the phase that the backend's facts ask for: the one that stands, unless they are
// bad, or were and are no longer. Which one of the core's then follows is the core's to say; a plain
// driver does not try to.
func (a *Addresses) observe(id string, ip netip.Addr, address *IPAddress) (Phase, error) {
	has, err := a.Backend.Has(id, ip)
	if err != nil {
		return "", err
	}
	used, err := a.Backend.IsUsed(ip)
	if err != nil {
		return "", err
	}
	phase := address.Status.Phase
	switch {
	case !has:
		return PhaseLost, nil
	case used:
		return PhaseConflict, nil
	case phase != PhaseConflict && phase != PhaseLost:
		return phase, nil
	case address.Spec.ClaimRef != nil && !a.Plain:
		return PhaseBound, nil
	default:
		return PhaseAvailable, nil
	}
}

func (a *Addresses) tearDown(ctx context.Context, address *IPAddress, id string, ip netip.Addr) error {
	// As long as the core protects the address a claim holds it. A rude driver does not wait.
	if controllerutil.ContainsFinalizer(address, addressProtection) && !a.Rude {
		return nil
	}
	if err := a.Backend.Unpin(ip.String()); err != nil {
		return err
	}
	if err := a.Backend.Release(id, ip); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(address, a.finalizer())
	log.FromContext(ctx).Info("torn down", "address", ip)
	return a.Update(ctx, address)
}
