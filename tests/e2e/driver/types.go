package main

import (
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What this driver needs of the kinds. What it writes as a whole it knows as a whole: its own addresses.

var groupVersion = schema.GroupVersion{Group: "local.sdn.cozystack.io", Version: "v1alpha1"}

const (
	stamp             = "local.sdn.cozystack.io/provisioner"
	serviceAnnotation = "local.sdn.cozystack.io/ip-address-claim"
	addressProtection = "local.sdn.cozystack.io/address-protection"
)

type Phase string

const (
	PhaseAvailable Phase = "Available"
	PhaseBound     Phase = "Bound"
	PhaseConflict  Phase = "Conflict"
	PhaseLost      Phase = "Lost"
)

type IPAddressClass struct {
	v1.TypeMeta   `json:",inline"`
	v1.ObjectMeta `json:"metadata,omitempty"`
	Spec          IPAddressClassSpec `json:"spec"`
}

type IPAddressClassSpec struct {
	Provisioner   string `json:"provisioner"`
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	// In the form of Parameters.
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

type IPAddress struct {
	v1.TypeMeta   `json:",inline"`
	v1.ObjectMeta `json:"metadata,omitempty"`
	Spec          IPAddressSpec   `json:"spec"`
	Status        IPAddressStatus `json:"status,omitzero"`
}

type IPAddressSpec struct {
	Address       string    `json:"address"`
	ClassName     string    `json:"className"`
	ClaimRef      *ClaimRef `json:"claimRef,omitempty"`
	ReclaimPolicy string    `json:"reclaimPolicy,omitempty"`
	Source        Source    `json:"source,omitzero"`
}

type ClaimRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

type Source struct {
	ProviderRef *ProviderRef `json:"providerRef,omitempty"`
}

type ProviderRef struct {
	ID string `json:"id"`
}

type IPAddressStatus struct {
	Phase        Phase          `json:"phase,omitempty"`
	AssociatedTo *Workload      `json:"associatedTo,omitempty"`
	Conditions   []v1.Condition `json:"conditions,omitempty"`
}

type Workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type IPAddressClaim struct {
	v1.TypeMeta   `json:",inline"`
	v1.ObjectMeta `json:"metadata,omitempty"`
	Spec          IPAddressClaimSpec   `json:"spec,omitzero"`
	Status        IPAddressClaimStatus `json:"status,omitzero"`
}

type IPAddressClaimSpec struct {
	ClassName string `json:"className,omitempty"`
	Family    string `json:"family,omitempty"`
}

type IPAddressClaimStatus struct {
	Phase     Phase            `json:"phase,omitempty"`
	ClassName string           `json:"className,omitempty"`
	Addresses []ClaimedAddress `json:"addresses,omitempty"`
}

type ClaimedAddress struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

type IPAddressClassList struct {
	v1.TypeMeta `json:",inline"`
	v1.ListMeta `json:"metadata,omitempty"`
	Items       []IPAddressClass `json:"items"`
}

type IPAddressList struct {
	v1.TypeMeta `json:",inline"`
	v1.ListMeta `json:"metadata,omitempty"`
	Items       []IPAddress `json:"items"`
}

type IPAddressClaimList struct {
	v1.TypeMeta `json:",inline"`
	v1.ListMeta `json:"metadata,omitempty"`
	Items       []IPAddressClaim `json:"items"`
}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion,
		&IPAddressClass{}, &IPAddressClassList{},
		&IPAddress{}, &IPAddressList{},
		&IPAddressClaim{}, &IPAddressClaimList{})
	v1.AddToGroupVersion(scheme, groupVersion)
}

func (c *IPAddressClass) DeepCopyObject() runtime.Object {
	copied := *c
	copied.ObjectMeta = *c.ObjectMeta.DeepCopy()
	copied.Spec.Parameters = c.Spec.Parameters.DeepCopy()
	return &copied
}

func (a *IPAddress) DeepCopyObject() runtime.Object {
	copied := *a
	copied.ObjectMeta = *a.ObjectMeta.DeepCopy()
	copied.Spec.ClaimRef = clone(a.Spec.ClaimRef)
	copied.Spec.Source.ProviderRef = clone(a.Spec.Source.ProviderRef)
	copied.Status.AssociatedTo = clone(a.Status.AssociatedTo)
	copied.Status.Conditions = append([]v1.Condition(nil), a.Status.Conditions...)
	return &copied
}

func (c *IPAddressClaim) DeepCopyObject() runtime.Object {
	copied := *c
	copied.ObjectMeta = *c.ObjectMeta.DeepCopy()
	copied.Status.Addresses = append([]ClaimedAddress(nil), c.Status.Addresses...)
	return &copied
}

func (l *IPAddressClassList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = cloneItems[IPAddressClass](l.Items)
	return &copied
}

func (l *IPAddressList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = cloneItems[IPAddress](l.Items)
	return &copied
}

func (l *IPAddressClaimList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = cloneItems[IPAddressClaim](l.Items)
	return &copied
}

// clone copies a value without pointers.
func clone[T any](value *T) *T {
	if value == nil {
		return nil
	}
	copied := *value
	return &copied
}

func cloneItems[T any, P interface {
	*T
	runtime.Object
}](items []T) []T {
	copied := make([]T, len(items))
	for i := range items {
		copied[i] = *P(&items[i]).DeepCopyObject().(P)
	}
	return copied
}
