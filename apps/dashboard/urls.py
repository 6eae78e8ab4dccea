from apps.dashboard import urls_reviews, urls_setup, urls_work

app_name = "dashboard"
urlpatterns = [*urls_setup.urlpatterns, *urls_work.urlpatterns, *urls_reviews.urlpatterns]
