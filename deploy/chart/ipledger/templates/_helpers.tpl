{{/* What the names of all objects begin with. */}}
{{- define "ipledger.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end -}}

{{/* What the pods of a component are known by; without a component, those of the release. */}}
{{- define "ipledger.selector" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default .root.Chart.Name | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* The labels of an object: our own come before those of `labels` and of the value commonLabels. */}}
{{- define "ipledger.labels" -}}
{{- $labels := include "ipledger.selector" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/version" .root.Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- toYaml (merge $labels (.labels | default dict) (.root.Values.commonLabels | default dict)) -}}
{{- end -}}

{{- define "ipledger.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Names of cluster-wide objects carry the release's namespace, so that two releases never share one. */}}
{{- define "ipledger.clusterName" -}}
{{ printf "%s:%s:%s" .root.Release.Namespace (include "ipledger.fullname" .root) .component }}
{{- end -}}

{{/* The same for policies, whose names take no colon. */}}
{{- define "ipledger.policyName" -}}
{{ printf "%s.%s.%s" .root.Release.Namespace (include "ipledger.fullname" .root) .policy }}
{{- end -}}

{{- define "ipledger.name" -}}
{{ printf "%s-%s" (include "ipledger.fullname" .root) .component }}
{{- end -}}

{{/* Where health and metrics are served. */}}
{{- define "ipledger.listen" -}}
{{- $address := .Values.listen.address -}}
{{ contains ":" $address | ternary (printf "[%s]" $address) $address }}:{{ .Values.listen.port }}
{{- end -}}

{{/* One component: account, deployment, service, budget. `command` is what the program is to be. */}}
{{- define "ipledger.component" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $elects := gt (int $values.replicas) 1 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "ipledger.name" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "ipledger.labels" . | nindent 4 }}
  {{- with ($values.serviceAccount).annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "ipledger.name" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "ipledger.labels" . | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels:
      {{- include "ipledger.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "ipledger.labels" (dict "root" $root "component" .component "labels" $values.podLabels) | nindent 8 }}
      {{- with $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "ipledger.name" . }}
      automountServiceAccountToken: true
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      terminationGracePeriodSeconds: 20
      containers:
        - name: ipledger
          image: {{ include "ipledger.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- range .command }}
            - {{ . | quote }}
            {{- end }}
            - --listen={{ include "ipledger.listen" $root }}
            {{- if $elects }}
            - --lease={{ $root.Release.Namespace }}/{{ include "ipledger.name" . }}
            {{- with ($values.leaderElection).leaseDuration }}
            - --lease-duration={{ . }}
            {{- end }}
            {{- end }}
            {{- range $values.args }}
            - {{ . | quote }}
            {{- end }}
          env:
            - name: IPLEDGER_LOG
              value: {{ $root.Values.log | quote }}
          ports:
            - name: http
              containerPort: {{ $root.Values.listen.port }}
          livenessProbe:
            httpGet:
              path: /livez
              port: http
            periodSeconds: 20
            failureThreshold: 3
          readinessProbe:
            httpGet:
              path: /readyz
              port: http
            periodSeconds: 5
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        {{- $own := dict "labelSelector" (dict "matchLabels" (include "ipledger.selector" $ | fromYaml)) }}
        - {{- toYaml (hasKey . "labelSelector" | ternary . (merge $own .)) | nindent 10 }}
        {{- end }}
      {{- end }}
---
# For who reads the metrics: every pod, also one that is not ready.
apiVersion: v1
kind: Service
metadata:
  name: {{ include "ipledger.name" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "ipledger.labels" . | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "ipledger.selector" . | nindent 4 }}
  ports:
    - name: http
      port: {{ $root.Values.listen.port }}
      targetPort: http
{{- if and $elects $root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "ipledger.name" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "ipledger.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "ipledger.selector" . | nindent 6 }}
{{- end }}
{{- if $elects }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "ipledger.name" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "ipledger.labels" . | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ include "ipledger.name" . | quote }}]
    verbs: [get, update]
  # A name cannot be said for what does not exist yet.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "ipledger.name" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "ipledger.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "ipledger.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "ipledger.name" . }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "ipledger.clusterName" . | quote }}
  labels:
    {{- include "ipledger.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "ipledger.clusterName" . | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ include "ipledger.name" . }}
    namespace: {{ $root.Release.Namespace }}
{{- end -}}
