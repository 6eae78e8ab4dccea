"""Alerts: subscriptions, and the log of their deliveries."""

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from apps.accounts.permissions import Permission, allow
from apps.alerts.alert_delivery import replay_delivery
from apps.alerts.models import Delivery, Subscription
from apps.alerts.subscription_changes import delete_subscription, save_subscription, send_test
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.accounts.alert_forms import SubscriptionForm
from apps.dashboard.forms.fields import show_errors
from apps.rollouts.search.keyset_pages import page_by_id


@allow(GET=Permission.CONFIGURE)
def alert_list(request: PageRequest) -> HttpResponse:
    counted = {state.value: Count("deliveries", filter=Q(deliveries__state=state)) for state in Delivery.State}
    return render(request, "alerts/list.html", {"subscriptions": Subscription.objects.annotate(**counted)})


@allow(GET=Permission.CONFIGURE)
def alert_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show a subscription and the log of its deliveries, newest first."""
    subscription = get_object_or_404(Subscription, pk=pk)
    page = page_by_id(subscription.deliveries.select_related("event"), request.GET.get("after", ""))
    return answer(request, "alerts/detail.html", {"subscription": subscription, "page": page}, part="deliveries")


@sensitive_post_parameters("address", "secret")
@sensitive_variables("form")
@never_cache
@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def alert_edit(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """Edit the subscription, or create one."""
    subscription = get_object_or_404(Subscription, pk=pk) if pk else Subscription()
    form = SubscriptionForm(posted(request), instance=subscription)
    if form.is_valid():
        with show_errors(form):
            saved = save_subscription(subscription=form.instance, user=request.user, **form.address_and_secret)
            messages.success(request, f"The subscription {saved.name} is saved.")
            return go(request, "dashboard:alert_detail", saved.pk)
    return answer_form(request, "alerts/form.html", {"form": form, "subscription": subscription})


alert_delete = action_view(
    Permission.CONFIGURE,
    delete_subscription,
    Subscription,
    "subscription",
    then="alert_list",
    success="{0} is deleted.",
)
alert_test = action_view(
    Permission.CONFIGURE,
    send_test,
    Subscription,
    "subscription",
    page="alert_detail",
    success="The test is queued. Reload the page to see its result.",
)
delivery_replay = action_view(
    Permission.CONFIGURE,
    replay_delivery,
    Delivery,
    "delivery",
    page=lambda delivery: reverse("dashboard:alert_detail", args=[delivery.subscription_id]),
    success="The delivery is queued again.",
)
