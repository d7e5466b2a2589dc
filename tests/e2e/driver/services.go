package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Services pins the addresses of a claim to the Service that names it (§7, 5).
type Services struct {
	client.Client
	Driver
}

func (s *Services) register(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(&corev1.Service{}).
		Watches(&IPAddress{}, handler.EnqueueRequestsFromMapFunc(s.concerned)).
		Watches(&IPAddressClaim{}, handler.EnqueueRequestsFromMapFunc(s.concerned)).
		Complete(s)
}

// concerned returns the Services to look at again when a claim or an address has changed.
func (s *Services) concerned(ctx context.Context, object client.Object) []reconcile.Request {
	namespace, claim := object.GetNamespace(), object.GetName()
	var requests []reconcile.Request
	if address, ok := object.(*IPAddress); ok {
		if workload := address.Status.AssociatedTo; workload != nil {
			requests = append(requests, request(workload.Namespace, workload.Name))
		}
		if address.Spec.ClaimRef == nil {
			return requests
		}
		namespace, claim = address.Spec.ClaimRef.Namespace, address.Spec.ClaimRef.Name
	}
	var services corev1.ServiceList
	if err := s.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "services")
	}
	for _, service := range services.Items {
		if service.Annotations[serviceAnnotation] == claim {
			requests = append(requests, request(namespace, service.Name))
		}
	}
	return requests
}

func (s *Services) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	wanted, err := s.wanted(ctx, request)
	if err != nil {
		return reconcile.Result{}, err
	}
	self := Workload{Kind: "Service", Namespace: request.Namespace, Name: request.Name}
	var pinned IPAddressList
	if err := s.List(ctx, &pinned, client.MatchingFields{byWorkload: request.String()}); err != nil {
		return reconcile.Result{}, err
	}
	for i := range pinned.Items {
		address := &pinned.Items[i]
		if wanted[address.Name] {
			continue
		}
		if err := s.Backend.Unpin(address.Spec.Address); err != nil {
			return reconcile.Result{}, err
		}
		if err := s.associate(ctx, address, nil); err != nil {
			return reconcile.Result{}, err
		}
	}
	for name := range wanted {
		var address IPAddress
		if err := s.Get(ctx, client.ObjectKey{Name: name}, &address); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if !address.DeletionTimestamp.IsZero() {
			continue
		}
		holder := address.Status.AssociatedTo
		if holder != nil && *holder != self {
			log.FromContext(ctx).Info("the claim serves another workload", "workload", *holder)
			continue
		}
		if holder == nil {
			if err := s.associate(ctx, &address, &self); err != nil {
				return reconcile.Result{}, err
			}
		}
		if err := s.Backend.Pin(address.Spec.Address, request.String()); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// wanted returns the names of the addresses that the Service is to have.
func (s *Services) wanted(ctx context.Context, request reconcile.Request) (map[string]bool, error) {
	var service corev1.Service
	if err := s.Get(ctx, request.NamespacedName, &service); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var claim IPAddressClaim
	name := service.Annotations[serviceAnnotation]
	if name == "" || !service.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if err := s.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: name}, &claim); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	wanted := map[string]bool{}
	if claim.Annotations[stamp] != s.Name || !claim.DeletionTimestamp.IsZero() {
		return wanted, nil
	}
	for _, address := range claim.Status.Addresses {
		wanted[address.Name] = true
	}
	return wanted, nil
}

func (s *Services) associate(ctx context.Context, address *IPAddress, workload *Workload) error {
	was := address.DeepCopyObject().(*IPAddress)
	address.Status.AssociatedTo = workload
	return s.Status().Patch(ctx, address, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
}
