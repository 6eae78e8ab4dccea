"""Addresses of what is set up: access, datasets, environments, models, agents."""

from django.urls import URLPattern, path

from apps.dashboard.views import access, account, agents, datasets, environments, home, models, people, tasks, uploads

urlpatterns: list[URLPattern] = [
    path("", home.home, name="home"),
    path("sign-in/", access.sign_in, name="sign_in"),
    path("sign-in/<str:token>/", access.sign_in_link, name="sign_in_link"),
    path("sign-out/", access.sign_out, name="sign_out"),
    path("theme/", access.theme, name="theme"),
    path("account/", account.account, name="account"),
    path("account/keys/", account.key_create, name="key_create"),
    path("account/keys/<int:pk>/revoke/", account.key_revoke, name="key_revoke"),
    path("people/", people.people, name="people"),
    path("people/new/", people.person_create, name="person_create"),
    path("people/<int:pk>/", people.person_edit, name="person_edit"),
    path("people/<int:pk>/link/", people.person_link, name="person_link"),
    path("datasets/", datasets.dataset_list, name="dataset_list"),
    path("datasets/new/", datasets.dataset_create, name="dataset_create"),
    path("datasets/<slug:slug>/", datasets.dataset_detail, name="dataset_detail"),
    path("datasets/<slug:slug>/upload/", uploads.dataset_upload, name="dataset_upload"),
    path("uploads/<int:pk>/", uploads.upload_detail, name="upload_detail"),
    path("uploads/<int:pk>/rejected/", uploads.upload_rejected, name="upload_rejected"),
    path("tasks/<int:pk>/", tasks.task_detail, name="task_detail"),
    path("environments/", environments.environment_list, name="environment_list"),
    path("environments/new/", environments.environment_create, name="environment_create"),
    path("environments/<slug:slug>/", environments.environment_detail, name="environment_detail"),
    path("environments/<slug:slug>/edit/", environments.environment_edit, name="environment_edit"),
    path("environments/<slug:slug>/check/", environments.environment_check, name="environment_check"),
    path("models/", models.model_list, name="model_list"),
    path("models/new/", models.model_create, name="model_create"),
    path("models/<slug:slug>/", models.model_detail, name="model_detail"),
    path("models/<slug:slug>/edit/", models.model_edit, name="model_edit"),
    path("models/<slug:slug>/check/", models.model_check, name="model_check"),
    path("models/<slug:slug>/try/", models.model_try, name="model_try"),
    path("agents/", agents.agent_list, name="agent_list"),
    path("agents/new/", agents.agent_create, name="agent_create"),
    path("agents/<slug:slug>/", agents.agent_detail, name="agent_detail"),
    path("agents/<slug:slug>/edit/", agents.agent_edit, name="agent_edit"),
]
