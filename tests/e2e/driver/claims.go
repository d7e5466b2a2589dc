package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Claims provisions for the claims that are stamped with the name of this driver (§7, 1 to 3).
type Claims struct {
	client.Client
	Driver
}

// Parameters is spec.parameters of a class of this driver.
type Parameters struct {
	Prefixes []netip.Prefix `json:"prefixes"`
}

func (c *Claims) register(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(&IPAddressClaim{}).
		Watches(&IPAddress{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			ref := object.(*IPAddress).Spec.ClaimRef
			if ref == nil {
				return nil
			}
			return []reconcile.Request{request(ref.Namespace, ref.Name)}
		})).
		Complete(c)
}

func (c *Claims) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var claim IPAddressClaim
	if err := c.Get(ctx, request.NamespacedName, &claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Annotations[stamp] != c.Name || !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if claim.Status.Phase == PhaseBound && !c.Eager {
		return reconcile.Result{}, nil
	}
	missing, err := c.missing(ctx, &claim)
	if err != nil || len(missing) == 0 {
		return reconcile.Result{}, err
	}
	// The class that the core has resolved; this driver resolves none.
	name := claim.Status.ClassName
	if name == "" {
		name = claim.Spec.ClassName
	}
	var class IPAddressClass
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if class.Spec.Provisioner != c.Name {
		return reconcile.Result{}, nil
	}
	for _, family := range missing {
		if err := c.provision(ctx, &claim, &class, family); errors.Is(err, errExhausted) || apierrors.IsAlreadyExists(err) {
			log.FromContext(ctx).Info("no address yet", "family", family, "why", err.Error())
			return reconcile.Result{RequeueAfter: c.Poll}, nil
		} else if err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// missing returns the families that no address covers which names the claim (§4, 5).
func (c *Claims) missing(ctx context.Context, claim *IPAddressClaim) ([]string, error) {
	var held IPAddressList
	if err := c.List(ctx, &held, client.MatchingFields{byClaim: claim.Namespace + "/" + claim.Name}); err != nil {
		return nil, err
	}
	covered := map[string]bool{}
	for _, address := range held.Items {
		uid := address.Spec.ClaimRef.UID
		ip, err := netip.ParseAddr(address.Spec.Address)
		if err != nil || (uid != "" && uid != string(claim.UID)) || address.Status.Phase == PhaseLost {
			continue
		}
		if c.Eager && !address.DeletionTimestamp.IsZero() {
			continue
		}
		covered[familyOf(ip)] = true
	}
	families := []string{claim.Spec.Family}
	switch claim.Spec.Family {
	case "":
		families = []string{"IPv4"}
	case "Dual":
		families = []string{"IPv4", "IPv6"}
	}
	var missing []string
	for _, family := range families {
		if !covered[family] {
			missing = append(missing, family)
		}
	}
	return missing, nil
}

// provision reserves an address first, and then records it.
func (c *Claims) provision(ctx context.Context, claim *IPAddressClaim, class *IPAddressClass, family string) error {
	var parameters Parameters
	if class.Spec.Parameters != nil {
		if err := json.Unmarshal(class.Spec.Parameters.Raw, &parameters); err != nil {
			return reconcile.TerminalError(fmt.Errorf("class %s: spec.parameters: %w", class.Name, err))
		}
	}
	var ledger IPAddressList
	if err := c.List(ctx, &ledger); err != nil {
		return err
	}
	taken := map[netip.Addr]bool{}
	for _, address := range ledger.Items {
		if ip, err := netip.ParseAddr(address.Spec.Address); err == nil {
			taken[ip] = true
		}
	}
	tag := Tag{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID), Family: family}
	reservation, err := c.Backend.Reserve(tag, parameters.Prefixes, taken)
	if err != nil {
		return err
	}
	name, text := c.spell(reservation)
	address := IPAddress{
		ObjectMeta: v1.ObjectMeta{Name: name, Finalizers: []string{c.finalizer()}},
		Spec: IPAddressSpec{
			Address:       text,
			ClassName:     class.Name,
			ClaimRef:      &ClaimRef{Namespace: claim.Namespace, Name: claim.Name},
			ReclaimPolicy: class.Spec.ReclaimPolicy,
			Source:        Source{ProviderRef: &ProviderRef{ID: reservation.ID}},
		},
	}
	if c.WithUID {
		address.Spec.ClaimRef.UID = string(claim.UID)
	}
	if err := c.Create(ctx, &address); err != nil {
		return err
	}
	log.FromContext(ctx).Info("provisioned", "address", text, "object", name)
	return nil
}

// spell returns the name of the object and the text of the address.
func (c *Claims) spell(reservation Reservation) (name, address string) {
	ip := reservation.IP
	name, address = objectName(ip), ip.String()
	if c.Rude && ip.Is4() {
		name = reservation.ID
	} else if c.Rude {
		address = strings.ToUpper(ip.StringExpanded())
	}
	return name, address
}

// objectName derives the name of the object from the address, so that one address has one object.
func objectName(ip netip.Addr) string {
	name := "ip-" + strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
	if strings.HasSuffix(name, "-") {
		name += "0"
	}
	return name
}

// sweep releases what no address records because a driver was killed in between, and no claim waits
// for, until the context ends.
func (c *Claims) sweep(ctx context.Context, live client.Reader) error {
	for {
		if err := c.sweepOnce(ctx, live); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the backend was not swept")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Poll):
		}
	}
}

func (c *Claims) sweepOnce(ctx context.Context, live client.Reader) error {
	all, err := c.Backend.All()
	if err != nil {
		return err
	}
	var ledger IPAddressList
	if err := c.List(ctx, &ledger); err != nil {
		return err
	}
	for _, reservation := range all {
		if records(ledger, reservation.ID) {
			continue
		}
		var claim IPAddressClaim
		err := c.Get(ctx, client.ObjectKey{Namespace: reservation.Tag.Namespace, Name: reservation.Tag.Name}, &claim)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		// Another copy may be about to record it.
		isNew := time.Since(reservation.Since) < 2*time.Second
		isGone := err != nil || string(claim.UID) != reservation.Tag.UID
		if isNew || !isGone && claim.Status.Phase != PhaseBound {
			continue
		}
		// The cache may be behind.
		var now IPAddressList
		if err := live.List(ctx, &now); err != nil {
			return err
		}
		if records(now, reservation.ID) {
			continue
		}
		log.FromContext(ctx).Info("released what nothing records", "address", reservation.IP)
		if err := c.Backend.Release(reservation.ID, reservation.IP); err != nil {
			return err
		}
	}
	return nil
}

func records(ledger IPAddressList, id string) bool {
	for _, address := range ledger.Items {
		if ref := address.Spec.Source.ProviderRef; ref != nil && ref.ID == id {
			return true
		}
	}
	return false
}
